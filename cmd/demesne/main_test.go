package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts call the real main as demesne, and as bare the same program with
// commands of the host in place of sandboxes.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"demesne": main,
		"bare": func() {
			a := &app{
				stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
				env: os.LookupEnv, connect: connectBare,
			}
			os.Exit(a.main(os.Args[1:]))
		},
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       os.Getenv("UPDATE") != "",
		RequireExplicitExec: false,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir+"/home")
			e.Setenv("DEMESNE_LIBEXEC", e.WorkDir+"/nowhere")
			return os.Mkdir(e.WorkDir+"/home", 0o755)
		},
	})
}
