package devcontainer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ImagePrefix begins the names of images that are built for a dev container.
const ImagePrefix = "local/devcontainer-"

// Plan says what the file asks for.
func (f *File) Plan(place Place) (*Plan, error) {
	p := &Plan{file: f, values: values{place: place}, hooks: map[string][]command{}, Needs: f.HostRequirements}
	if err := f.unsupported(); err != nil {
		return nil, err
	}
	if f.has("dockerComposeFile") {
		if err := p.compose(f); err != nil {
			return nil, err
		}
	}
	if err := p.workspace(f); err != nil {
		return nil, err
	}
	if err := p.image(f); err != nil {
		return nil, err
	}
	if err := p.mounts(f); err != nil {
		return nil, err
	}
	p.omitted("", f)
	for _, port := range f.ForwardPorts {
		p.Ports = append(p.Ports, string(port))
	}
	p.Ports = append(p.Ports, f.AppPort...)
	p.noteUnfilled()
	return p, p.values.err()
}

// noteUnfilled notes the variables that stand for nothing, before a build fails because of one.
func (p *Plan) noteUnfilled() {
	for _, line := range p.values.untold() {
		p.note("%s", line)
	}
}

// unsupported refuses what the environment would lack without a word.
func (f *File) unsupported() error {
	switch {
	case f.Build != nil && len(f.Build.Options) > 0:
		return fmt.Errorf("build: options: not supported: %s", strings.Join(f.Build.Options, " "))
	}
	return nil
}

// image takes the image or the build.
func (p *Plan) image(f *File) error {
	if p.service != nil {
		if p.Build = p.service.build; p.Build == nil {
			p.Name = p.service.image
		}
		return nil
	}
	b := build{}
	if f.Build != nil {
		b = *f.Build
	}
	b.Dockerfile, b.Context = cmp.Or(b.Dockerfile, f.DockerFile), cmp.Or(b.Context, f.Context, ".")
	switch {
	case b.Dockerfile == "" && f.Image == "":
		return &Refused{errors.New("neither an image nor a build with a dockerfile"), "demesne run --image NAME --here needs no devcontainer.json"}
	case b.Dockerfile == "":
		var err error
		p.Name, err = p.values.required("image", f.Image, p.values.inside)
		return err
	case f.Image != "":
		return errors.New("both an image and a build")
	}
	target, err := p.values.required("build: target", b.Target, p.values.inside)
	if err != nil {
		return err
	}
	p.Build = &Build{Target: target}
	for name, value := range b.Args {
		p.Build.Args = append(p.Build.Args, name+"="+p.values.inside(string(value)))
	}
	slices.Sort(p.Build.Args)
	if p.Build.File, err = p.beside(b.Dockerfile); err == nil {
		p.Build.Context, err = p.beside(b.Context)
	}
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	return nil
}

// omissions are properties without an effect, with the reason. Others that only tell an editor something have none.
var omissions = []struct{ name, why string }{
	{"initializeCommand", "not executed: it would run on this machine"},
	{"postAttachCommand", "not executed: no editor is attached"},
	{"privileged", "ignored: a sandbox has no privileges"},
	{"capAdd", "ignored: a sandbox gets no capabilities of this machine"},
	{"securityOpt", "ignored: flags decide about the isolation"},
	{"runArgs", "ignored: flags of demesne run take their place"},
	{"entrypoint", "not executed"},
}

// omitted notes what has no effect.
func (p *Plan) omitted(from string, f *File) {
	for _, o := range omissions {
		switch {
		case !f.has(o.name):
		case o.name == "runArgs" && strings.Trim(strings.Join(f.RunArgs, " "), " ") == "--init": // a sandbox has one
		case o.name == "runArgs":
			p.note("%s%s: %s: %s", from, o.name, o.why, strings.Join(f.RunArgs, " "))
		default:
			p.note("%s%s: %s", from, o.name, o.why)
		}
	}
}

// maxNotes bounds the notes, which a person must be able to read.
const maxNotes = 300

// MetadataLabel is the label of an image that has parts of a devcontainer.json.
const MetadataLabel = "devcontainer.metadata"

// Image adds what the image says. The file's own settings override it.
//
// A sandbox's root is the caller on this machine, and the workspace's files are the caller's. So if the workspace is
// writable, root takes the place of another user, unless updateRemoteUserUID is false. Docker's tools change that user's
// id to the caller's instead, for the same reason.
//
// It returns an error if variables expand to more than bounds allow.
func (p *Plan) Image(has Has, writable bool) error {
	p.Notes = nil
	all := p.all(has)
	p.values.env = map[string]string{}
	for _, e := range has.Env {
		name, value, _ := strings.Cut(e, "=")
		p.values.env[name] = value
	}
	own := map[string]string{}
	for _, f := range all {
		for name, value := range f.ContainerEnv {
			own[name] = p.values.inside(string(value))
		}
	}
	maps.Copy(p.values.env, own)
	for _, f := range all {
		p.remoteEnv(f, own)
		p.addHooks(f)
	}
	p.User, _ = p.users(all, has)
	keeps := string(p.file.own["updateRemoteUserUID"]) == "false"
	if name, _, _ := strings.Cut(p.User, ":"); writable && !keeps && name != "" && name != "root" && name != "0" {
		p.AsRoot = true
		p.note("remoteUser: root takes the place of %s, with its home: the workspace's files are root's in a sandbox; --user %s changes that", name, name)
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		p.Env = append(p.Env, name+"="+own[name])
	}
	p.noteUnfilled()
	return p.values.err()
}

// all returns the parts that decide: the image, the compose file, the features, and the file itself.
func (p *Plan) all(has Has) []*File {
	all := p.parts(has.Metadata)
	if p.service != nil {
		all = append(all, &p.service.file)
	}
	for _, f := range p.features {
		all = append(all, &File{settings: settings{hooks: f.file.hooks}}) // its variables are the image's
	}
	return append(all, p.file)
}

// users returns the user of commands and the user of the container: the last part that names one decides.
func (p *Plan) users(all []*File, has Has) (remote, container string) {
	for _, f := range all {
		remote, container = cmp.Or(p.values.inside(f.RemoteUser), remote), cmp.Or(p.values.inside(f.ContainerUser), container)
	}
	container = cmp.Or(container, has.User)
	return cmp.Or(remote, container), container
}

// remoteEnv adds the variables of commands to own. All of them may use the variables of the image, and not each other.
func (p *Plan) remoteEnv(f *File, own map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(f.RemoteEnv)) {
		value := f.RemoteEnv[name]
		if value != nil {
			own[name] = p.values.inside(string(*value))
			continue
		}
		delete(own, name)
		if _, set := p.values.env[name]; set {
			p.note("remoteEnv: %s remains set", name)
		}
	}
}

// parts returns the parts of a devcontainer.json that an image has. Its mounts are left out: they are not mounts of the
// workspace.
func (p *Plan) parts(metadata string) (all []*File) {
	if metadata == "" {
		return nil
	}
	var raw []map[string]json.RawMessage
	err := decode([]byte(metadata), &raw)
	if err != nil {
		raw = make([]map[string]json.RawMessage, 1)
		err = decode([]byte(metadata), &raw[0])
	}
	for _, own := range raw {
		f := &File{own: own}
		if err == nil {
			err = f.fill()
		}
		if err != nil {
			p.note("the image's metadata: ignored: %v", err)
			return nil
		}
		p.omitted("the image's metadata: ", f)
		if len(f.Mounts) > 0 {
			p.note("the image's metadata: mounts: ignored")
		}
		all = append(all, f)
	}
	return all
}
