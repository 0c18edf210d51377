// Package build builds images of Containerfiles, for every frontend. [Run] takes [Options], which are also the flags of demesne
// build, and returns the image or a [Failure].
//
//	result, err := build.Run(ctx, build.Options{Context: dir, Names: []string{"local/app"}}, build.Streams{Log: os.Stderr})
//
// The package is small, because demesne links it. Package build/worker does the work, in a process of demesne-images.
package build

import (
	"errors"
	"strings"

	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
)

// Options say what to build. Their words are the flags of demesne build.
type Options struct {
	Context  string // directory; -: a tar, or a Containerfile, on stdin; empty: of Recipe
	File     string
	Recipe   string
	Names    []string
	Target   string
	Args     []string // NAME[=VALUE]
	Secrets  []string // id=ID[,src=PATH|,env=NAME]
	SSH      []string // ID[=SOCKET], or ID=KEY[,KEY…]
	Labels   []string // NAME=VALUE
	Platform string
	NoCache  bool
	Pull     bool
	Network  string // of RUN: none or default
	Egress   string
	Allow    []string
	Images   []string // that a Containerfile may name; empty: all
	// Stored, if it is not nil, means that no image is pulled. It has names in the store for names that a Containerfile may use,
	// each a whole reference.
	Stored    map[string]string
	Limits    runner.Limits
	MaxLayers int64 // -1: none; 0: not given
	IIDFile   string
	Output    string // type=TYPE,dest=PATH; PATH; or -
	Timestamp string // seconds since 1970
	Progress  string
	Quiet     bool
}

const (
	groupImage   = "Image"
	groupSteps   = "Steps"
	groupNetwork = "Network"
	groupResult  = "Result"
)

// DefaultEgress is the egress mode of a build that names none.
const DefaultEgress = runner.PackageManagers

// Progress styles.
var progresses = []string{"auto", "plain", "tty"}

// EventProgress is the style that package images reads: see package events. People do not type it.
const EventProgress = "events"

// Flags returns the flags, bound to o.
func (o *Options) Flags() cmdline.Flags {
	return cmdline.Flags{
		{Group: groupImage, Long: "file", Short: 'f', Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.File),
			Help: "the Containerfile, or - for stdin (default Containerfile or Dockerfile in the context)"},
		{Group: groupImage, Long: "recipe", Arg: "NAME", Set: cmdline.Text(&o.Recipe),
			Help: "build an image that demesne has a recipe for, such as browser, without a context; see demesne images --all"},
		{Group: groupImage, Long: "tag", Short: 't', Arg: "NAME", Repeat: true, Set: cmdline.List(&o.Names, nil),
			Help: "name of the image, such as local/app or local/app:2"},
		{Group: groupImage, Long: "target", Arg: "STAGE", Set: cmdline.Text(&o.Target),
			Help: "the last stage to build, by name or number (default the last of the file)"},
		{Group: groupImage, Long: "label", Arg: "NAME=VALUE", Repeat: true, Set: cmdline.List(&o.Labels, pair),
			Help: "add a label to the image"},
		{Group: groupImage, Long: "platform", Arg: "OS/ARCH", Set: cmdline.Text(&o.Platform),
			Help: "platform of the bases and of the image (default this machine's)"},
		{Group: groupImage, Long: "timestamp", Arg: "SECONDS", Set: cmdline.Text(&o.Timestamp),
			Help: "time of the image and of all files in new layers, in seconds since 1970 (default $SOURCE_DATE_EPOCH, or now)"},
		{Group: groupSteps, Long: "build-arg", Arg: "NAME[=VALUE]", Repeat: true, Set: cmdline.List(&o.Args, nil),
			Help: "value of an ARG; NAME alone takes it from this environment"},
		{Group: groupSteps, Long: "secret", Arg: "id=ID[,src=PATH]", Repeat: true, Set: cmdline.List(&o.Secrets, nil),
			Help: "a file for RUN --mount=type=secret; env=NAME in place of src takes a variable of this environment"},
		{Group: groupSteps, Long: "ssh", Arg: "ID[=PATH,…]", Repeat: true, Set: cmdline.List(&o.SSH, nil),
			Help: "an agent for RUN --mount=type=ssh: the one at a socket, or one that has the keys of files (default $SSH_AUTH_SOCK)"},
		{Group: groupSteps, Long: "no-cache", Set: cmdline.On(&o.NoCache),
			Help: "execute every step, even if an earlier build has its result"},
		{Group: groupSteps, Long: "pull", Set: cmdline.On(&o.Pull),
			Help: "ask the registry for newer bases"},
		{Group: groupImage, Long: "allow-image", Arg: "NAME", Repeat: true, Set: cmdline.List(&o.Images, nil),
			Help: "a Containerfile may name only this image, or images below a prefix such as local/*, in addition to demesne's catalogue"},
		{Group: groupSteps, Long: "memory", Arg: "SIZE", Set: cmdline.Memory(&o.Limits.Memory),
			Help: "memory limit of each step, or none (default half of the machine's)"},
		{Group: groupSteps, Long: "cpus", Arg: "N", Set: cmdline.CPUs(&o.Limits.CPUs),
			Help: "limit of processor time of each step, in processors, or none (default none)"},
		{Group: groupSteps, Long: "pids", Arg: "N", Set: cmdline.PIDs(&o.Limits.PIDs),
			Help: "limit of processes and threads of each step, or none (default 512)"},
		{Group: groupSteps, Long: "disk", Arg: "SIZE", Set: cmdline.Disk(&o.Limits.Disk),
			Help: "limit for what a stage writes, or none (default none)"},
		{Group: groupSteps, Long: "max-layers", Arg: "SIZE", Set: cmdline.Disk(&o.MaxLayers),
			Help: "limit for all new layers together, or none; the results of steps are then kept no longer than the image"},
		{Group: groupNetwork, Long: "egress", Arg: "MODE", Words: runner.EgressModes(), Set: cmdline.Text(&o.Egress),
			Help: "destinations that RUN may reach: " + text.Or(runner.EgressModes()) + " (default " + DefaultEgress + ")"},
		{Group: groupNetwork, Long: "network", Arg: "MODE", Words: networks, Set: o.setNetwork,
			Help: "network of RUN: none, also where ADD may fetch files, or default, which is what --egress allows"},
		{Group: groupNetwork, Long: "allow-domain", Arg: "NAME[:PORT]", Repeat: true, Set: cmdline.List(&o.Allow, nil),
			Help: "also allow this destination, as in demesne run"},
		{Group: groupResult, Long: "iidfile", Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.IIDFile),
			Help: "write the digest of the image to a file"},
		{Group: groupResult, Long: "output", Short: 'o', Arg: "type=TYPE,dest=PATH", Complete: cmdline.File, Set: cmdline.Text(&o.Output),
			Help: "also write the image (oci, docker) or its files (tar, local) to PATH; PATH alone is a directory for the files"},
		{Group: groupResult, Long: "progress", Arg: "STYLE", Words: progresses, Set: cmdline.Word(&o.Progress, append(progresses, EventProgress)),
			Help: "how to show progress: plain, tty, or auto (default auto: tty on a terminal)"},
		{Group: groupResult, Long: "quiet", Short: 'q', Set: cmdline.On(&o.Quiet),
			Help: "print only the digest, and the output of a failed step"},
	}
}

// Command returns the command with its help.
func (o *Options) Command() *cmdline.Command {
	return &cmdline.Command{
		Name: "build", Usage: []string{"[flags] CONTEXT"}, Summary: "build an image from a Containerfile",
		About: `Builds an image from a Containerfile or Dockerfile, and prints its digest. CONTEXT is the directory that COPY reads, or -
for a tar or a Containerfile on stdin. Files that .containerignore or .dockerignore excludes are not read.

Every RUN is executed in a sandbox over the layers below it. It reaches package registries and no other name, unless
--egress or --allow-domain is given; RUN --network=none has no network, and --network none does this to every RUN. It cannot read
files of this machine.

The result of each step is kept. A later build takes it if the instruction, its arguments, the layers below and the copied
files are the same. demesne gc --build removes results that were not used for a week.`,
		Examples: []cmdline.Example{
			{Says: "build an image, and run it", Line: "demesne build -t local/app . && demesne run --image local/app"},
			{Says: "build without any network", Line: "demesne build --egress none -t local/app ."},
			{Says: "build one stage with another file", Line: "demesne build -f ci/Containerfile --target test ."},
			{Says: "use a token that is in no layer", Line: "demesne build --secret id=token,src=token.txt -t local/app ."},
		},
		Operand: cmdline.Directory, Flags: o.Flags(), Habits: habits,
	}
}

// network is the hint for the ways of others to give steps a network.
const network = "use --egress none, --egress open or --allow-domain NAME; --network none is only for RUN, and RUN --network=none for one step"

// NoNetwork is the network of a RUN that has none.
const NoNetwork = "none"

var networks = []string{NoNetwork, "default"}

// setNetwork takes the network of RUN as docker build does, but for those that lead around the rules.
func (o *Options) setNetwork(s string) error {
	if s == "host" {
		return text.Hinted(errors.New("a RUN never has this machine's network"), network)
	}
	if err := cmdline.OneOf(s, networks); err != nil {
		return text.Hinted(err, network)
	}
	o.Network = s
	return nil
}

// habits are flags of docker build, podman build and buildah.
func habits() map[string]string {
	const (
		caches   = "leave it out: the results of steps are kept, and demesne gc --build removes old ones"
		inside   = "a RUN is always in a sandbox, without rights on this machine"
		contexts = "COPY --from=NAME takes files of an image, and demesne import makes an image of a directory"
		push     = "demesne push NAME, after the build"
		layers   = "COPY --from=STAGE / / below FROM scratch, as the last stage, makes one layer"
	)
	return map[string]string{
		"--add-host": "RUN echo ADDRESS NAME >> /etc/hosts is for one step; " + network, "--dns": network,
		"--cache-from": caches, "--cache-to": caches, "--layers": caches, "--rm": caches, "--force-rm": caches, "--compress": caches,
		"--no-cache-filter": "--no-cache executes all steps", "--cache-ttl": caches,
		"--squash": layers, "--squash-all": layers, "--isolation": inside, "--security-opt": inside, "--privileged": inside, "--cap-add": inside,
		"--cap-drop": inside, "--device": inside, "--allow": inside, "--userns": inside, "--ulimit": "use --memory SIZE, --pids N or --disk SIZE", "--shm-size": "RUN --mount=type=tmpfs,target=PATH,size=SIZE",
		"--cpu-quota": "use --cpus N", "-m": "use --memory SIZE", "--volume": "use RUN --mount=type=bind or type=cache", "-v": "use RUN --mount=type=bind or type=cache",
		"--build-context": contexts, "--push": push, "--load": "leave it out: the image is in demesne's store", "--builder": "leave it out: there is no daemon",
		"--sbom": "not supported", "--provenance": "not supported", "--attest": "not supported", "--annotation": "use --label NAME=VALUE",
		"--build-arg-file": "use --build-arg NAME=VALUE", "--metadata-file": "use --iidfile FILE", "--env": "use --build-arg NAME=VALUE and ARG", "--pull-always": "use --pull", "--tls-verify": "see registries.conf: insecure = true",
		"--ignorefile": "use CONTAINERFILE.containerignore beside the Containerfile", "--format": "use --output type=docker,dest=FILE", "--source-date-epoch": "use --timestamp SECONDS",
	}
}

func pair(s string) error {
	if i := strings.Index(s, "="); i <= 0 {
		return errors.New("not NAME=VALUE")
	}
	return nil
}
