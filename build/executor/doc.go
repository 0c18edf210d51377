// Package executor builds images, for the verbs of package build/worker.
//
// Package build/containerfile says what each instruction asks for. This package executes the steps that make layers, one
// sandbox for the steps of a stage, and keeps each layer under the step's key, so that the next build finds it:
//
//	open.go      the Containerfile and its plan
//	builder.go   one build: its stages, in parallel where none needs another
//	stage.go     one stage: from FROM to its last instruction
//	find.go      images of the store and of registries
//	sandbox.go   the sandbox of a stage, and the layers it makes; own.go: what in them is not of the build
//	run.go       RUN; mounts.go, secrets.go: what it mounts, temp.go: private files of a build on the host
//	copy.go      COPY and WORKDIR; unpack.go, fetch.go, fetchurl.go: ADD; context.go, stdin.go: the files that they read
//	key.go       what a step's result depends on
//	publish.go   the image's configuration, history and name; output.go: files of it
//	recipe.go    images that demesne has a recipe for
//	show.go      progress
//
// A build makes nothing visible before its end: layers are named only by their keys, and the image gets its name last. So a
// killed build leaves only layers, which the next build uses, or gc removes.
package executor
