use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::owner;
use crate::{
    ValidatedService,
    contract::{HTTP_PORT, HTTP_PORT_NAME},
    names,
};

/// The Service in front of the ready pods, for clients that do without the gateway.
pub fn service(service: &ValidatedService) -> Service {
    Service {
        metadata: owner::child_meta(service, names::service_name(&service.name)),
        spec: Some(ServiceSpec {
            selector: Some(super::labels(&service.name)),
            ports: Some(vec![ServicePort {
                name: Some(HTTP_PORT_NAME.into()),
                port: HTTP_PORT,
                target_port: Some(IntOrString::String(HTTP_PORT_NAME.into())),
                protocol: Some("TCP".into()),
                app_protocol: Some("http".into()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use crate::build::fixtures;

    #[test]
    fn a_service_selects_the_pods_of_its_llmservice() {
        insta::assert_yaml_snapshot!(super::service(&fixtures::service()));
    }
}
