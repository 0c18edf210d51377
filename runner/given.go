package runner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Argument is one property that a caller requested of a sandbox with a Key, as text. Equal texts request the same.
type Argument struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Default marks an argument that the caller omitted. Value is then the default, and counts as equal
	// to every value.
	Default bool `json:"default,omitempty"`
}

// Arguments returns the properties that spec requests, except Out. Fields with their zero value are omitted. A
// caller that fills in defaults of its own appends them with Default set.
func (spec Spec) Arguments() []Argument {
	var all []Argument
	add := func(name, value string) {
		if value != "" {
			all = append(all, Argument{Name: name, Value: value})
		}
	}
	add("name", spec.Name)
	add("image", spec.Image)
	add("inputs", inputWords(spec.Inputs))
	add("workspace", spec.Workspace)
	add("mounts", mountWords(spec.Mounts))
	add("docker", flagWord(spec.Served() != nil))
	if u := spec.User; u != nil {
		add("user", fmt.Sprintf("%d:%d", u.UID, u.GID))
	}
	add("memory", limitWord(float64(spec.Limits.Memory)))
	add("cpus", limitWord(spec.Limits.CPUs))
	add("pids", limitWord(float64(spec.Limits.PIDs)))
	add("disk", limitWord(float64(spec.Limits.Disk)))
	add("files", limitWord(float64(spec.Limits.Files)))
	add("nesting", flagWord(spec.Nesting))
	add("share", string(spec.Share))
	add("require", string(spec.Require))
	add("ttl", spec.TTL.timeWord())
	add("max-age", spec.MaxAge.timeWord())
	add("pause-idle", spec.PauseIdle.timeWord())
	add("hostname", spec.Hostname)
	add("hosts", hostWords(spec.Hosts))
	add("tmpfs", tmpfsWords(spec.Tmpfs))
	add("published ports", portWords(spec.Publish))
	if e := spec.Egress; e != nil {
		add("egress", e.Mode)
		add("allowed domains", SetWord(e.Allow))
		add("denied domains", SetWord(e.Deny))
		add("open with inputs", flagWord(e.OpenWithInputs))
		add("learn", flagWord(e.Learn))
		add("group", e.Group)
		add("aliases", SetWord(e.Aliases))
		add("go proxy", flagWord(e.GoProxy))
		add("ask", e.Ask.timeWord())
		add("package age", e.PackageAge.timeWord())
		add("routes", RouteWords(e.Routes))
		add("listeners", listenWords(e.Listen))
		add("host ports", listenWords(e.HostPorts))
	}
	return all
}

func inputWords(inputs []Input) string {
	var words []string
	for _, in := range inputs {
		word := in.Path + ":" + in.Name
		if in.Socket {
			word = "socket " + word
		}
		words = append(words, word)
	}
	return SetWord(words)
}

// mountWords keeps the order, which decides what is visible.
func mountWords(mounts []Mount) string {
	var words []string
	for _, m := range mounts {
		if m.Server == "" { // each request has another path for those
			words = append(words, m.String())
		}
	}
	return strings.Join(words, " ")
}

func hostWords(hosts []Host) string {
	var words []string
	for _, h := range hosts {
		words = append(words, h.Name+":"+h.Addr.String())
	}
	return SetWord(words)
}

func tmpfsWords(all []Tmpfs) string {
	var words []string
	for _, t := range all {
		words = append(words, fmt.Sprintf("%s:%d", t.Target, t.Size))
	}
	return SetWord(words)
}

func portWords(ports []Port) string {
	var words []string
	for _, p := range ports {
		words = append(words, fmt.Sprintf("%s%s:%d", p.Within, p.Listen, p.To))
	}
	return SetWord(words)
}

// RouteWords formats the routes of a sandbox, without their credentials.
func RouteWords(routes []Route) string {
	var words []string
	for _, r := range routes {
		words = append(words, r.String())
	}
	return SetWord(words)
}

func listenWords(ports []uint16) string {
	var words []string
	for _, p := range ports {
		words = append(words, strconv.Itoa(int(p)))
	}
	return SetWord(words)
}

// SetWord formats a list whose order does not matter.
func SetWord(words []string) string {
	return strings.Join(slices.Sorted(slices.Values(words)), " ")
}

func limitWord(n float64) string {
	switch {
	case n == 0:
		return ""
	case n < 0:
		return "none"
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

func (d Duration) timeWord() string {
	if d == 0 {
		return ""
	}
	return time.Duration(d).String()
}

func flagWord(on bool) string {
	if on {
		return "yes"
	}
	return ""
}
