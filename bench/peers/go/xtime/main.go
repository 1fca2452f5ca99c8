// SPDX-License-Identifier: MIT

// golang.org/x/time/rate: one limiter for each key, in a map behind a mutex.
package main

import (
	"sync"

	"golang.org/x/time/rate"

	"peers/frame"
)

type limiters struct {
	mutex sync.Mutex
	of    map[string]*rate.Limiter
	rate  rate.Limit
	burst int
}

func (l *limiters) Take(key string) bool {
	l.mutex.Lock()
	limiter, known := l.of[key]
	if !known {
		limiter = rate.NewLimiter(l.rate, l.burst)
		l.of[key] = limiter
	}
	l.mutex.Unlock()
	return limiter.Allow()
}

func main() {
	o := frame.Read()
	perSecond := rate.Limit(float64(o.Limit) / o.Period.Seconds())
	if o.Row == "one" {
		o.One(rate.NewLimiter(perSecond, o.Limit).Allow)
		return
	}
	o.Run(func() frame.Limiter {
		return &limiters{of: make(map[string]*rate.Limiter), rate: perSecond, burst: o.Limit}
	})
}
