// SPDX-License-Identifier: MIT

// A control plane for the tests of rules over xDS: go-control-plane's snapshot cache and server.
//
// Each line of its input is a snapshot, {"version": V, "resources": [BASE64 of a RateLimitConfig]}
// or {"version": V, "recorded": FILE of a DiscoveryResponse}.
// Each line of its output is an event: it listens, a stream was opened or closed, a request came
// (an ACK, or a NACK with its error), a snapshot was set. It ends with its input.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

const lineMax = 64 << 20

type event struct {
	Event   string            `json:"event"`
	Address string            `json:"address,omitempty"`
	Stream  int64             `json:"stream,omitempty"`
	Node    string            `json:"node,omitempty"`
	Type    string            `json:"type,omitempty"`
	Version string            `json:"version,omitempty"`
	Nonce   string            `json:"nonce,omitempty"`
	Error   string            `json:"error,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

var output struct {
	sync.Mutex
	*json.Encoder
}

func tell(e event) {
	output.Lock()
	defer output.Unlock()
	if output.Encode(e) != nil {
		os.Exit(1)
	}
}

func fail(err error) {
	tell(event{Event: "failed", Error: err.Error()})
	os.Exit(1)
}

// What clients do, as events.
func callbacks() server.Callbacks {
	return server.CallbackFuncs{
		StreamOpenFunc: func(ctx context.Context, stream int64, _ string) error {
			headers := map[string]string{}
			fields, _ := metadata.FromIncomingContext(ctx)
			for name, values := range fields {
				headers[name] = values[0]
			}
			tell(event{Event: "opened", Stream: stream, Headers: headers})
			return nil
		},
		StreamClosedFunc: func(stream int64, _ *core.Node) {
			tell(event{Event: "closed", Stream: stream})
		},
		StreamRequestFunc: func(stream int64, request *discovery.DiscoveryRequest) error {
			tell(event{Event: "request", Stream: stream, Node: request.GetNode().GetId(),
				Type: request.TypeUrl, Version: request.VersionInfo, Nonce: request.ResponseNonce,
				Error: request.GetErrorDetail().GetMessage()})
			return nil
		},
	}
}

// Mutual TLS if an authority of clients is given.
func options(certificate, key, clientCA string) ([]grpc.ServerOption, error) {
	if certificate == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if clientCA != "" {
		text, err := os.ReadFile(clientCA)
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if err != nil || !config.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: no certificate: %w", clientCA, err)
		}
	}
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(config))}, nil
}

// Fields that this version of go-control-plane does not know are kept, and sent.
func snapshot(line []byte) (*cache.Snapshot, error) {
	var wanted struct {
		Version   string
		Resources [][]byte
		Recorded  string
	}
	if err := json.Unmarshal(line, &wanted); err != nil {
		return nil, err
	}
	if wanted.Recorded != "" {
		message, err := os.ReadFile(wanted.Recorded)
		if err != nil {
			return nil, err
		}
		response := &discovery.DiscoveryResponse{}
		if err := proto.Unmarshal(message, response); err != nil {
			return nil, err
		}
		for _, each := range response.Resources {
			wanted.Resources = append(wanted.Resources, each.Value)
		}
	}
	resources := []types.Resource{}
	for _, encoded := range wanted.Resources {
		config := &ratelimit.RateLimitConfig{}
		if err := proto.Unmarshal(encoded, config); err != nil {
			return nil, err
		}
		resources = append(resources, config)
	}
	return cache.NewSnapshot(wanted.Version,
		map[resource.Type][]types.Resource{resource.RateLimitConfigType: resources})
}

func main() {
	address := flag.String("address", "127.0.0.1:0", "listen here")
	node := flag.String("node", "default", "the node that gets the snapshots")
	certificate := flag.String("cert", "", "file of a certificate: serve with TLS")
	key := flag.String("key", "", "file of its key")
	clientCA := flag.String("client-ca", "", "file of the authority of clients")
	flag.Parse()
	output.Encoder = json.NewEncoder(os.Stdout)

	credentials, err := options(*certificate, *key, *clientCA)
	if err != nil {
		fail(err)
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		fail(err)
	}
	snapshots := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	served := grpc.NewServer(credentials...)
	discovery.RegisterAggregatedDiscoveryServiceServer(served,
		server.NewServer(context.Background(), snapshots, callbacks()))
	go func() { fail(served.Serve(listener)) }()
	tell(event{Event: "listening", Address: listener.Addr().String()})

	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineMax)
	for lines.Scan() {
		set, err := snapshot(lines.Bytes())
		if err == nil {
			err = snapshots.SetSnapshot(context.Background(), *node, set)
		}
		if err != nil {
			fail(err)
		}
		tell(event{Event: "set", Version: set.GetVersion(resource.RateLimitConfigType)})
	}
	if lines.Err() != nil {
		fail(lines.Err())
	}
}
