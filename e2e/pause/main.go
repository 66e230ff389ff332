// Command pause holds a pod's namespaces and reaps its orphans until it is told to stop. Given an address
// (pause :8080) it also answers every HTTP request with its host name, which makes it the smallest pod that a test
// can reach.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, syscall.SIGCHLD)
	if len(os.Args) > 1 {
		go serve(os.Args[1])
	}
	for {
		select {
		case <-stop:
			return
		case <-orphans:
			reap()
		}
	}
}

func reap() {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 && err != syscall.EINTR {
			return
		}
	}
}

func serve(address string) {
	name, _ := os.Hostname()
	server := http.Server{
		Addr:              address,
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, name)
		}),
	}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}
