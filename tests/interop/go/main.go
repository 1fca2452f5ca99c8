// SPDX-License-Identifier: MIT

// Asks a server with go-redis, over RESP2 and RESP3, and prints what it was answered as one line of
// JSON each. Between the two halves of a session the server is restarted: "restart" asks for that,
// and a line on the standard input says that it is done.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	hour     = 3600
	nPipe    = 1000
	patience = 20 * time.Second
)

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A map as RESP2 and RESP3 have it.
func fields(reply any) map[string]any {
	found := map[string]any{}
	switch reply := reply.(type) {
	case map[any]any:
		for name, value := range reply {
			found[fmt.Sprint(name)] = value
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			found[fmt.Sprint(reply[i])] = reply[i+1]
		}
	}
	return found
}

func connect(port, secret string, protocol int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:" + port, Password: secret, Protocol: protocol, PoolSize: 4, MaxRetries: -1})
}

func pipeline(ctx context.Context, client *redis.Client, key string) (allowed int, err error) {
	pipe := client.Pipeline()
	replies := make([]*redis.Cmd, nPipe)
	for i := range replies {
		replies[i] = pipe.Do(ctx, "CL.THROTTLE", key, 599, 1, hour)
	}
	if _, err = pipe.Exec(ctx); err != nil {
		return
	}
	for _, reply := range replies {
		if reply.Val().([]any)[0].(int64) == 0 {
			allowed++
		}
	}
	return
}

func firstHalf(ctx context.Context, client *redis.Client, key string, told map[string]any) error {
	var throttled []any
	for i := 0; i < 4; i++ {
		reply, err := client.Do(ctx, "CL.THROTTLE", key, 2, 1, hour).Slice()
		if err != nil {
			return err
		}
		throttled = append(throttled, reply)
	}
	told["throttled"] = throttled
	taken, err := client.Do(ctx, "STINT.TAKE", "QUOTA", "gcra 5/1h", key, "COST", 2).Result()
	if err != nil {
		return err
	}
	told["taken"] = fields(taken)
	if told["pipelined"], err = pipeline(ctx, client, key+":pipe"); err != nil {
		return err
	}
	told["nonsense"] = text(client.Do(ctx, "STINT.TAKE", "QUOTA", "nonsense", key).Err())
	told["get"] = text(client.Get(ctx, key).Err())
	subscription := client.Subscribe(ctx, key)
	_, err = subscription.Receive(ctx)
	told["subscribe"] = text(err)
	told["after"] = text(client.Ping(ctx).Err())
	return subscription.Close()
}

func secondHalf(ctx context.Context, client *redis.Client, key string, told map[string]any) error {
	// The pool's connections are dead: a client may learn of it by an error.
	for ends := time.Now().Add(patience); ; {
		reply, err := client.Do(ctx, "CL.THROTTLE", key, 2, 1, hour).Slice()
		if err == nil {
			told["restarted"] = reply
			return nil
		}
		if time.Now().After(ends) {
			return err
		}
	}
}

func session(ctx context.Context, port, secret string) error {
	var refused []string
	for _, given := range []string{"", "wrong" + secret} {
		stranger := connect(port, given, 3)
		refused = append(refused, text(stranger.Ping(ctx).Err()))
		stranger.Close()
	}
	var clients [2]*redis.Client
	var told [2]map[string]any
	for i := range clients {
		clients[i] = connect(port, secret, i+2)
		defer clients[i].Close()
		told[i] = map[string]any{"protocol": i + 2, "refused": refused}
		if err := firstHalf(ctx, clients[i], fmt.Sprint("key", i), told[i]); err != nil {
			return err
		}
	}
	fmt.Println(`"restart"`)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for i := range clients {
		if err := secondHalf(ctx, clients[i], fmt.Sprint("key", i), told[i]); err != nil {
			return err
		}
		line, err := json.Marshal(told[i])
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	return nil
}

func main() {
	if err := session(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
