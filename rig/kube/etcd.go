package main

import (
	"errors"
	"fmt"
	"net/url"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
)

// etcdCommand is a single-member etcd for a cluster that may lose its data: nothing is synced to disk.
func etcdCommand() *cobra.Command {
	config := embed.NewConfig()
	config.Name = "rig"
	config.LogLevel = "warn"
	config.UnsafeNoFsync = true
	var clients, peers string
	command := &cobra.Command{
		Use:           "etcd",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			clientURL, err := plainURL("listen-client-urls", clients)
			if err != nil {
				return err
			}
			peerURL, err := plainURL("listen-peer-urls", peers)
			if err != nil {
				return err
			}
			config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{clientURL}, []url.URL{clientURL}
			config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peerURL}, []url.URL{peerURL}
			config.InitialCluster = config.InitialClusterFromName(config.Name)
			return serveEtcd(command, config)
		},
	}
	command.Flags().StringVar(&config.Dir, "data-dir", "", "where the data lies")
	command.Flags().StringVar(&clients, "listen-client-urls", "", "the one address for clients")
	command.Flags().StringVar(&peers, "listen-peer-urls", "", "the one address for peers; there are none, but etcd wants one")
	for _, name := range []string{"data-dir", "listen-client-urls", "listen-peer-urls"} {
		if err := command.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
	return command
}

func plainURL(flag, text string) (url.URL, error) {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Scheme != "http" || parsed.Port() == "" {
		return url.URL{}, fmt.Errorf("--%s: %q is not of the form http://HOST:PORT", flag, text)
	}
	return *parsed, nil
}

func serveEtcd(command *cobra.Command, config *embed.Config) error {
	stop, cancel := signal.NotifyContext(command.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer server.Close()
	select {
	case <-stop.Done():
		return nil
	case err, open := <-server.Err():
		if !open {
			return errors.New("etcd stopped by itself")
		}
		return err
	}
}
