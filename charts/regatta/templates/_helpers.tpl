{{- define "regatta.labels" -}}
app.kubernetes.io/part-of: regatta
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "regatta.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}

{{- define "regatta.gatewayUrl" -}}
http://{{ .Release.Name }}-gateway.{{ .Release.Namespace }}.svc{{ if ne (int .Values.gateway.service.port) 80 }}:{{ .Values.gateway.service.port }}{{ end }}
{{- end }}

{{- define "regatta.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "regatta.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "regatta.adminProbes" -}}
livenessProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 2
  timeoutSeconds: 5
{{- end }}

{{/* Read by Prometheus configurations that go by annotations; others ignore them. */}}
{{- define "regatta.scrapeAnnotations" -}}
prometheus.io/scrape: "true"
prometheus.io/port: "9090"
prometheus.io/path: /metrics
{{- end }}
