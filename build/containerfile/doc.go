// Package containerfile reads a Containerfile, plans its stages, and says what each instruction asks of the executor.
//
//	f, err := build.Parse("Containerfile", r)       syntax, by BuildKit's parser
//	plan, err := f.Plan(build.Options{Target: …})   the stages that the target needs, dependencies first
//	st, err := plan.Begin(stage, config)            the state after FROM
//	step, err := st.Apply(command)                  variables expanded; a nil step changed the configuration only
//
// The package executes nothing, and opens no file of an image. Package build/executor executes steps: a Run in a
// sandbox, and a Copy by a tar that is laid into it. A [Step] has a key that covers all that its result depends on, except the
// content of copied files, which the executor adds.
//
// The input is untrusted: it is bounded and parsed once. Every error is an [Error] with file and line.
package containerfile
