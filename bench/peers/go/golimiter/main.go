// SPDX-License-Identifier: MIT

// sethvargo/go-limiter: its store in memory.
package main

import (
	"context"
	"time"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"

	"peers/frame"
)

type store struct {
	limiter.Store
}

func (s store) Take(key string) bool {
	_, _, _, ok, err := s.Store.Take(context.Background(), key)
	return ok && err == nil
}

func newStore(o frame.Options) frame.Limiter {
	made, err := memorystore.New(&memorystore.Config{
		Tokens:        uint64(o.Limit),
		Interval:      o.Period,
		SweepInterval: time.Hour,
		SweepMinTTL:   time.Hour,
		InitialAlloc:  o.Keys,
	})
	if err != nil {
		panic(err)
	}
	return store{made}
}

func main() {
	frame.Main(newStore)
}
