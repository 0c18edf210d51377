package inprocess_test

import (
	"context"
	"fmt"
	"log"

	"demesne/client"
	"demesne/server/inprocess"
)

// A program that has demesne's programs beside it, or names their directory in DEMESNE_LIBEXEC, needs no server.
func Example() {
	ctx := context.Background()
	c, err := inprocess.New(inprocess.Options{Egress: "none"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	r, err := c.Run(ctx, client.RunRequest{Command: client.Command{Command: "echo hello from a sandbox"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(r.Stdout.Text)
	// Output: hello from a sandbox
}
