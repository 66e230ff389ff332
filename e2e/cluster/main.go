// Command regatta-kubernetes is every program of a Kubernetes node in one binary, so that tests and the demo run the
// real thing without downloading release archives. The program to be is the name it is called by, or its first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	_ "time/tzdata"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// programs run with os.Args already cut so that os.Args[0] is the program's own name.
var programs = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          func() { component(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { component(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() { component(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() { component(kubelet.NewKubeletCommand(context.Background())) },
	"kube-proxy":              func() { component(proxy.NewProxyCommand()) },
	"kubectl":                 runKubectl,
}

func component(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func runKubectl() {
	// kubectl logs while it builds its command, so the verbosity has to be set before.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

func main() {
	if run, ok := programs[filepath.Base(os.Args[0])]; ok {
		run()
		return
	}
	if len(os.Args) > 1 {
		if run, ok := programs[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			run()
			return
		}
	}
	names := make([]string, 0, len(programs))
	for name := range programs {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "usage: %s PROGRAM [flags]\nprograms: %s\n", os.Args[0], strings.Join(names, " "))
	os.Exit(2)
}
