// Command netpol enforces the NetworkPolicies of the rig's node.
//
// It is the firewall of kube-router without its router and its service proxy: policies become iptables rules and ip sets
// in the network namespace that it runs in. A module of its own, because its checksum is not in the public database.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	config := options.NewKubeRouterConfig()
	config.EnableIPv4 = true
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	services := flag.String("service-cidr", "", "the addresses of the cluster's services")
	flag.StringVar(&config.HostnameOverride, "node", "", "the name of the node that this is")
	flag.Parse()
	config.ClusterIPCIDRs = []string{*services}
	if err := enforce(*kubeconfig, config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func enforce(kubeconfig string, config *options.KubeRouterConfig) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	watched := informers.NewSharedInformerFactory(client, 0)
	pods := watched.Core().V1().Pods().Informer()
	namespaces := watched.Core().V1().Namespaces().Informer()
	policies := watched.Networking().V1().NetworkPolicies().Informer()
	watched.Start(ctx.Done())
	for kind, synced := range watched.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("the watch of %s ended before it had begun", kind)
		}
	}

	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	controller, err := netpol.NewNetworkPolicyController(
		client, config, pods, policies, namespaces, &sync.Mutex{}, tables, sets)
	if err != nil {
		return err
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods:       controller.PodEventHandler,
		namespaces: controller.NamespaceEventHandler,
		policies:   controller.NetworkPolicyEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	// The controller says that it lives before every sync, and waits until somebody listens.
	heartbeats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range heartbeats {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	go controller.Run(heartbeats, ctx.Done(), &running)
	running.Wait()
	if ctx.Err() == nil {
		return errors.New("the controller stopped by itself")
	}
	return nil
}
