// SPDX-License-Identifier: MIT

// Package frame is the protocol of bench/peers/README.md, for limiters of Go.
package frame

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

type Options struct {
	Form, Row, sequence              string
	Keys, threads, operations, Limit int
	Period                           time.Duration
}

// Limiter is what its users have for many keys.
type Limiter interface {
	Take(key string) bool
}

func number(word string) int {
	n, err := strconv.Atoi(word)
	if err != nil {
		panic(err)
	}
	return n
}

func Read() Options {
	w := os.Args[1:]
	if len(w) != 8 {
		panic("usage: FORM ROW KEYS SEQUENCE THREADS OPERATIONS LIMIT PERIOD_MS")
	}
	return Options{Form: w[0], Row: w[1], Keys: number(w[2]), sequence: w[3], threads: number(w[4]),
		operations: number(w[5]), Limit: number(w[6]),
		Period: time.Duration(number(w[7])) * time.Millisecond}
}

func keyText(index int) string {
	return fmt.Sprintf("user:%011d", index)
}

func cpu() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func sequence(path string) []uint32 {
	bytes, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	indices := make([]uint32, len(bytes)/4)
	for i := range indices {
		indices[i] = binary.LittleEndian.Uint32(bytes[4*i:])
	}
	return indices
}

// turn runs one turn in some threads; each returns how many were granted.
func (o Options) turn(run func(thread int) int) {
	var group sync.WaitGroup
	granted := make([]int, o.threads)
	wall, before := time.Now(), cpu()
	for thread := 1; thread < o.threads; thread++ {
		group.Add(1)
		go func(thread int) {
			granted[thread] = run(thread)
			group.Done()
		}(thread)
	}
	granted[0] = run(0)
	group.Wait()
	used, seconds, sum := cpu()-before, time.Since(wall).Seconds(), 0
	for _, n := range granted {
		sum += n
	}
	fmt.Printf("{\"operations\": %d, \"granted\": %d, \"cpu_s\": %.9f, \"wall_s\": %.9f}\n",
		o.operations, sum, used, seconds)
}

func (o Options) keyed(limiter Limiter, lines *bufio.Scanner) {
	keys := make([]string, o.Keys)
	for i := range keys {
		keys[i] = keyText(i)
		limiter.Take(keys[i])
	}
	indices := sequence(o.sequence)
	mask, share := len(indices)-1, o.operations/o.threads
	runtime.GC()
	fmt.Println(`{"ready": true}`)
	for turns := 0; lines.Scan(); turns++ {
		o.turn(func(thread int) int {
			granted, at := 0, turns*share+thread*(len(indices)/o.threads)
			for i := at; i < at+share; i++ {
				if limiter.Take(keys[indices[i&mask]]) {
					granted++
				}
			}
			return granted
		})
	}
}

func (o Options) memory(make func() Limiter, lines *bufio.Scanner) {
	var kept []Limiter
	var before, after runtime.MemStats
	fmt.Println(`{"ready": true}`)
	for lines.Scan() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		limiter := make()
		for i := 0; i < o.Keys; i++ {
			limiter.Take(keyText(i))
		}
		kept = append(kept, limiter)
		runtime.GC()
		runtime.ReadMemStats(&after)
		fmt.Printf("{\"keys\": %d, \"heap_bytes\": %d}\n", o.Keys, after.HeapAlloc-before.HeapAlloc)
	}
	runtime.KeepAlive(kept)
}

func ask(limiter Limiter, lines *bufio.Scanner) {
	fmt.Println(`{"ready": true}`)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		granted := 0
		for i := number(words[2]); i > 0; i-- {
			if limiter.Take(words[1]) {
				granted++
			}
		}
		fmt.Printf("{\"granted\": %d}\n", granted)
	}
}

// One is the row of a limiter without keys.
func (o Options) One(take func() bool) {
	lines := bufio.NewScanner(os.Stdin)
	fmt.Println(`{"ready": true}`)
	for lines.Scan() {
		o.turn(func(int) int {
			granted := 0
			for i := 0; i < o.operations/o.threads; i++ {
				if take() {
					granted++
				}
			}
			return granted
		})
	}
}

// Run does the rows with keys.
func (o Options) Run(make func() Limiter) {
	lines := bufio.NewScanner(os.Stdin)
	switch o.Row {
	case "keyed":
		o.keyed(make(), lines)
	case "memory":
		o.memory(make, lines)
	case "ask":
		ask(make(), lines)
	default:
		panic("unknown row " + o.Row)
	}
}

// Main does every row, for a peer whose only form is that with keys.
func Main(make func(Options) Limiter) {
	o := Read()
	if o.Row == "one" {
		one := make(o)
		o.One(func() bool { return one.Take("one") })
		return
	}
	o.Run(func() Limiter { return make(o) })
}
