// SPDX-License-Identifier: MIT

// Limits of a web application, decided by a server of stint.
//
// All limits of a route are one request to stint: if one denies, none is charged. The request is
// plain HTTP, because net/http needs no module and its reply has the header fields that clients of
// the application get.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/netip"
	"time"
)

// Limit is a quota, and the key of each request under it.
type Limit struct {
	Quota string
	Key   func(*http.Request) string
}

// Limiter asks the server at URL. Requests that it does not decide pass if FailOpen, else they are
// refused with 503.
type Limiter struct {
	URL      string
	Token    string
	FailOpen bool
}

// The time limit is that of the whole request.
var client = http.Client{
	Timeout:   250 * time.Millisecond,
	Transport: &http.Transport{MaxIdleConnsPerHost: 100, IdleConnTimeout: time.Minute},
}

// Limit charges one unit of each limit before each request.
func (l *Limiter) Limit(next http.HandlerFunc, limits ...Limit) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		reply, err := l.take(r, limits)
		if err == nil && (reply.StatusCode == 200 || reply.StatusCode == 429) {
			for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
				if value := reply.Header.Get(name); value != "" {
					w.Header().Set(name, value)
				}
			}
			if reply.StatusCode == 200 {
				next(w, r)
			} else {
				http.Error(w, "Too many requests.", 429)
			}
			return
		}
		// 4xx is a request that stint refuses. No client may pass by causing one.
		passes := l.FailOpen && (err != nil || reply.StatusCode >= 500)
		if err == nil {
			err = errors.New(reply.Status)
		}
		if passes {
			log.Print("not limited: ", err)
			next(w, r)
		} else {
			log.Print("refused: ", err)
			http.Error(w, "Limits cannot be checked now.", 503)
		}
	}
}

func (l *Limiter) take(r *http.Request, limits []Limit) (*http.Response, error) {
	items := []map[string]string{}
	for _, limit := range limits {
		items = append(items, map[string]string{"quota": limit.Quota, "key": limit.Key(r)})
	}
	body, _ := json.Marshal(map[string]interface{}{"items": items})
	ask, err := http.NewRequest("POST", l.URL+"/v1/take", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	ask.Header.Set("Content-Type", "application/json")
	if l.Token != "" {
		ask.Header.Set("Authorization", "Bearer "+l.Token)
	}
	reply, err := client.Do(ask)
	if err == nil {
		// Read to its end, so that the connection is used again.
		_, err = io.Copy(io.Discard, reply.Body)
		reply.Body.Close()
	}
	return reply, err
}

// Network is a client's address as a key: of IPv6 the /64, since a client may use all addresses
// in it.
func Network(r *http.Request) string {
	client, _ := netip.ParseAddrPort(r.RemoteAddr)
	address := client.Addr().Unmap().WithZone("")
	if address.Is6() {
		network, _ := address.Prefix(64)
		return network.String()
	}
	return address.String()
}
