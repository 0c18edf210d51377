// Package devcontainer reads a devcontainer.json (containers.dev), and says what a sandbox for it has.
//
//	name, err := Find(root)            the file of a workspace
//	f, err := Read(root, name)         JSON with comments and trailing commas
//	p, err := f.Plan(place)            image or build, mounts, directory, hooks; also of a compose file (compose.go, yaml.go)
//	err = p.Resolve(fetch)             features and their order (feature.go)
//	text, err := p.Containerfile(base) the build that installs them (install.go)
//	err = p.Image(metadata, env)       what the image adds
//	argv := p.Wrap(argv, persistent)   the hooks before a command
//
// A caller gives the texts of other files. The package does not open files, execute programs, or call the runner.
//
// The file may come with a repository of a stranger. So it gets nothing of this machine but the workspace, which the
// caller named: no other directory, no variable, no port, no privilege, no command outside the sandbox. A file that needs
// something else is refused if the sandbox would lack a part of the environment, else a note says what was left out.
package devcontainer
