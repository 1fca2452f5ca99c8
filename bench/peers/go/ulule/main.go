// SPDX-License-Identifier: MIT

// ulule/limiter: its store in memory.
package main

import (
	"context"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"peers/frame"
)

type store struct {
	*limiter.Limiter
}

func (s store) Take(key string) bool {
	at, err := s.Limiter.Get(context.Background(), key)
	return err == nil && !at.Reached
}

func newStore(o frame.Options) frame.Limiter {
	memory := memory.NewStoreWithOptions(limiter.StoreOptions{
		Prefix:          "p",
		CleanUpInterval: time.Hour,
	})
	return store{limiter.New(memory, limiter.Rate{Period: o.Period, Limit: int64(o.Limit)})}
}

func main() {
	frame.Main(newStore)
}
