// Package envd has the messages and services of E2B's agent in a sandbox, which this server takes the place of: process.Process
// and filesystem.Filesystem. Everything but this file is made by `make generate` from the .proto files beside it.
//
// The package does nothing itself. Package e2b implements both services.
package envd
