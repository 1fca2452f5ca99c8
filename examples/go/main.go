// SPDX-License-Identifier: MIT

// net/http with limits: go run .

package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

// The user of a request, as a key. X-User stands for the user of your sessions; without one the
// address is the key.
func user(r *http.Request) string {
	if name := r.Header.Get("X-User"); name != "" {
		return "user:" + name
	}
	return "address:" + Network(r)
}

var (
	perUser = Limit{"100/1m", user}
	logins  = Limit{"5/1m", func(r *http.Request) string { return "login:" + Network(r) }}
)

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func main() {
	stint := &Limiter{
		URL:      setting("STINT_URL", "http://127.0.0.1:8080"),
		FailOpen: setting("STINT_FAIL", "open") == "open",
	}
	if path := os.Getenv("STINT_TOKEN_FILE"); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			log.Fatal(err)
		}
		stint.Token = strings.TrimSpace(strings.SplitN(string(text), "\n", 2)[0])
	}
	http.HandleFunc("/", stint.Limit(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello world\n")
	}, perUser))
	http.HandleFunc("/login", stint.Limit(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello user\n")
	}, perUser, logins))
	log.Fatal(http.ListenAndServe("127.0.0.1:"+setting("PORT", "3000"), nil))
}
