// A schema registry of franz-go on a free port. It prints its URL, and ends with its standard input.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/twmb/franz-go/pkg/sr/srfake"
)

func main() {
	var options []srfake.Option
	if len(os.Args) > 1 {
		options = append(options, srfake.WithAuth(os.Args[1]))
	}
	registry := srfake.New(options...)
	defer registry.Close()
	fmt.Println(registry.URL())
	io.Copy(io.Discard, os.Stdin)
}
