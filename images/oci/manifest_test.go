package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const digits = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// TestCommand checks the argv of an image. The rows match `docker run`.
func TestCommand(t *testing.T) {
	list := func(s ...string) []string { return s }
	over := func(s ...string) *[]string { return &s }
	for _, c := range []struct {
		name       string
		config     Config
		entrypoint *[]string
		args, want []string
	}{
		{"cmd", Config{Cmd: list("sh")}, nil, nil, list("sh")},
		{"args for cmd", Config{Cmd: list("sh")}, nil, list("ls", "-l"), list("ls", "-l")},
		{"entrypoint and cmd", Config{Entrypoint: list("e", "1"), Cmd: list("c")}, nil, nil, list("e", "1", "c")},
		{"entrypoint and args", Config{Entrypoint: list("e", "1"), Cmd: list("c")}, nil, list("a"), list("e", "1", "a")},
		{"entrypoint alone", Config{Entrypoint: list("e")}, nil, nil, list("e")},
		{"other entrypoint", Config{Entrypoint: list("e"), Cmd: list("c")}, over("o"), nil, list("o")},
		{"other entrypoint and args", Config{Entrypoint: list("e"), Cmd: list("c")}, over("o"), list("a"), list("o", "a")},
		{"no entrypoint", Config{Entrypoint: list("e"), Cmd: list("c")}, over(), list("a"), list("a")},
		{"nothing left", Config{Entrypoint: list("e"), Cmd: list("c")}, over(), nil, nil},
		{"nothing", Config{}, nil, nil, nil},
		{"args alone", Config{}, nil, list("a"), list("a")},
		{"empty word", Config{Cmd: list("")}, nil, nil, nil},
		{"empty argument", Config{Cmd: list("sh", "")}, nil, nil, list("sh", "")},
	} {
		got, err := c.config.Command(c.entrypoint, c.args)
		if !slices.Equal(got, c.want) || (c.want == nil) != errors.Is(err, ErrNoCommand) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

// TestCommandCopies checks that the caller may modify the result.
func TestCommandCopies(t *testing.T) {
	c := Config{Entrypoint: append(make([]string, 0, 8), "e"), Cmd: []string{"c"}}
	one, _ := c.Command(nil, []string{"1"})
	two, _ := c.Command(nil, []string{"2"})
	if one[1] != "1" || two[1] != "2" {
		t.Errorf("%q and %q share their words", one, two)
	}
}

func manifestJSON(mediaType string, layers ...string) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"digest":"sha256:%s","size":2,"new":1},"layers":[%s],"later":{"a":[]}}`,
		mediaType, digits, strings.Join(layers, ","))
}

func layerJSON(digest string, size int64) string {
	return fmt.Sprintf(`{"mediaType":"x","digest":%q,"size":%d}`, digest, size)
}

func TestParseManifest(t *testing.T) {
	other := "sha256:" + strings.Repeat("1", 64)
	for _, mt := range []string{TypeOCIManifest, TypeDockerManifest, ""} {
		m, err := ParseManifest([]byte(manifestJSON(mt, layerJSON(other, 7), layerJSON(other, 7))))
		if err != nil || m.Config.Size != 2 || len(m.Layers) != 2 || m.Layers[1].Size != 7 {
			t.Errorf("%q: %+v, %v", mt, m, err)
			continue
		}
		if len(m.Blobs()) != 2 {
			t.Errorf("%q: the same layer twice is %d blobs", mt, len(m.Blobs()))
		}
	}
}

func TestParseManifestRefuses(t *testing.T) {
	other := "sha256:" + strings.Repeat("1", 64)
	for _, c := range []struct{ in, why string }{
		{`{`, "unexpected end"},
		{`[]`, "cannot unmarshal"},
		{`{}`, "schema version 0"},
		{`{"schemaVersion":1}`, "schema version 1"},
		{manifestJSON("application/vnd.oci.image.index.v1+json"), "media type"},
		{manifestJSON(strings.Repeat("x", 9999)), "media type"},
		{strings.Replace(manifestJSON(""), `"later"`, `"manifests":[],"later"`, 1), "fields of an index"},
		{manifestJSON("", layerJSON("sha256:../../x", 1)), "64 lower-case"},
		{manifestJSON("", layerJSON("", 1)), "without a digest"},
		{manifestJSON("", layerJSON(other, -1)), "-1 bytes"},
		{manifestJSON("", layerJSON(other, 1<<50)), "bytes"},
		{manifestJSON("", layerJSON(other, 1), layerJSON(other, 2)), "two sizes"},
		{manifestJSON("", layerJSON("sha512:"+digits+digits, 1)), "only sha256"},
		{strings.Replace(manifestJSON(""), `"size":2`, `"size":9000000`, 1), "configuration of 9000000"},
		{strings.Replace(manifestJSON(""), `"size":2`, `"size":"2"`, 1), "cannot unmarshal"},
		{manifestJSON("", slices.Repeat([]string{layerJSON(other, 1)}, MaxLayers+1)...), "513 layers"},
		{`"` + strings.Repeat(" ", MaxManifest) + `"`, "longer than"},
	} {
		m, err := ParseManifest([]byte(c.in))
		if err == nil {
			t.Errorf("%.100s: %+v", c.in, m)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, "parse manifest: ") || !strings.Contains(text, c.why) {
			t.Errorf("%.100s: %v, want %q", c.in, err, c.why)
		}
		if len(err.Error()) > 300 {
			t.Errorf("%.50s: an error of %d bytes", c.in, len(err.Error()))
		}
	}
}

func TestParseConfig(t *testing.T) {
	in := `{"architecture":"arm64","variant":"v8","os":"linux","created":"2026-01-02T03:04:05.5Z","author":7,
		"config":{"Env":["A=b"],"Entrypoint":["e"],"Cmd":null,"WorkingDir":"/w","User":"me:us","StopSignal":"SIGINT","Labels":{"k":"v"},"Architecture":"lie"},
		"rootfs":{"type":"layers","diff_ids":["sha256:` + digits + `"]}}`
	c, err := ParseConfig([]byte(in), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{"arm64", "v8", "linux", []string{"A=b"}, []string{"e"}, nil, "/w", "me:us", "SIGINT", map[string]string{"k": "v"}}
	if a, b := jsonOf(t, c.Config), jsonOf(t, want); a != b {
		t.Errorf("got %s, want %s", a, b)
	}
	if !c.Created.Equal(time.Date(2026, 1, 2, 3, 4, 5, 5e8, time.UTC)) || c.DiffIDs[0].Encoded() != digits {
		t.Errorf("got %v, %v", c.Created, c.DiffIDs)
	}
}

// TestConfigEnvironment checks F33: entries that are not variables are dropped, and none of them takes the place of another.
func TestConfigEnvironment(t *testing.T) {
	for in, want := range map[string][]string{
		`["A=1","A","*","LD_*","","=","=x","A\u0000=1","B=\u0000","PATH","HOME"]`: {"A=1"},
		`["LD_PRELOAD=/x","LD_*=1","*=1"," =1","A=","B==","C\n=1"]`:               {"LD_PRELOAD=/x", "LD_*=1", "*=1", " =1", "A=", "B==", "C\n=1"},
		`["PATH=` + strings.Repeat("/", 1<<20) + `"]`:                             {"PATH=" + strings.Repeat("/", 1<<20)},
		`null`: nil,
		`[]`:   nil,
	} {
		c, err := ParseConfig([]byte(`{"config":{"Env":`+in+`}}`), 0)
		if err != nil || !slices.Equal(c.Env, want) {
			t.Errorf("%.100s: %.100q, %v", in, c.Env, err)
		}
	}
}

// TestConfigIsAllThatIsRead lists the metadata of an image that demesne reads. A label or an annotation cannot change how
// a sandbox is isolated (F34): a manifest's annotations are not read at all, and the only label that is read is
// devcontainer.metadata, with --devcontainer. A new field needs its hostile values in TestEscapeF34Metadata.
func TestConfigIsAllThatIsRead(t *testing.T) {
	fields := func(v any) (names []string) {
		for f := range reflect.TypeOf(v).Fields() {
			names = append(names, f.Name)
		}
		return names
	}
	if got, want := fields(Config{}), []string{"Architecture", "Variant", "OS", "Env", "Entrypoint", "Cmd", "WorkingDir", "User", "StopSignal", "Labels"}; !slices.Equal(got, want) {
		t.Errorf("Config has %q", got)
	}
	if got, want := fields(Manifest{}), []string{"MediaType", "Config", "Layers"}; !slices.Equal(got, want) {
		t.Errorf("Manifest has %q", got)
	}
}

// TestConfigAmbiguous checks documents that two parsers could read in two ways. Each is refused, or read as encoding/json
// reads it everywhere in demesne: the last member applies, and the case of its name does not.
func TestConfigAmbiguous(t *testing.T) {
	rep := strings.Repeat
	for _, c := range []struct{ name, in, user string }{ // user "!": refused
		{"twice", `{"config":{"User":"a","User":"b"}}`, "b"},
		{"another case", `{"config":{"User":"a","uSER":"b"}}`, "b"},
		{"two configs", `{"config":{"User":"a"},"config":{"User":"b"}}`, "b"},
		{"null afterwards", `{"config":{"User":"a"},"config":null}`, "a"},
		{"a list", `{"config":[{"User":"a"}]}`, "!"},
		{"a number as user", `{"config":{"User":0}}`, "!"},
		{"text as command", `{"config":{"Cmd":"sh"}}`, "!"},
		{"a number as signal", `{"config":{"StopSignal":9}}`, "!"},
		{"labels of lists", `{"config":{"Labels":{"a":["b"]}}}`, "!"},
		{"a huge number", `{"created":1e999999}`, "!"},
		{"a long number that is not read", `{"x":` + rep("9", 1<<20) + `,"config":{"User":"a"}}`, "a"},
		{"deep", `{"x":` + rep("[", 100_000) + rep("]", 100_000) + `}`, "!"},
		{"deep objects", rep(`{"config":`, 100_000) + "null" + rep("}", 100_000), "!"},
		{"two documents", `{"config":{"User":"a"}}{"config":{"User":"b"}}`, "!"},
		{"a byte order mark", "\xef\xbb\xbf{}", "!"},
		{"UTF-16", "{\x00}\x00", "!"},
		{"fields that do nothing", `{"config":{"Volumes":7,"ExposedPorts":["/"],"Healthcheck":"x","OnBuild":1,"Shell":{},"ArgsEscaped":"no","User":"a"},"history":"x"}`, "a"},
	} {
		got, err := ParseConfig([]byte(c.in), 0)
		if c.user == "!" {
			if err == nil {
				t.Errorf("%s: %+v", c.name, got)
			}
			continue
		}
		if err != nil || got.User != c.user {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestParseConfigRefuses(t *testing.T) {
	for _, c := range []struct{ in, why string }{
		{`{`, "unexpected end"},
		{`{}`, "0 diff ids for 1 layers"},
		{`{"rootfs":{"diff_ids":["a","b"]}}`, "only sha256"},
		{`{"rootfs":{"diff_ids":[""]}}`, "empty diff id"},
		{`{"rootfs":{"diff_ids":[7]}}`, "cannot unmarshal"},
		{strings.Repeat(" ", MaxConfig+1), "longer than"},
	} {
		_, err := ParseConfig([]byte(c.in), 1)
		if err == nil {
			t.Errorf("%.100s is parsed", c.in)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, "parse configuration: ") || !strings.Contains(text, c.why) {
			t.Errorf("%.100s: %v, want %q", c.in, err, c.why)
		}
	}
	if _, err := ParseConfig([]byte(`{"created":5,"rootfs":{}}`), 0); err != nil {
		t.Errorf("a strange date: %v", err)
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(manifestJSON("", layerJSON("sha256:"+digits, 2))))
	f.Add([]byte(`{"schemaVersion":2,"layers":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseManifest(b)
		if err != nil {
			return
		}
		for _, d := range m.Blobs() {
			if _, err := ParseDigest(string(d.Digest)); err != nil || d.Size < 0 {
				t.Errorf("blob %+v: %v", d, err)
			}
		}
	})
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"config":{"Env":["A"]},"rootfs":{"diff_ids":["sha256:` + digits + `"]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseConfig(b, 1)
		if err != nil {
			return
		}
		if _, err := ParseDigest(string(c.DiffIDs[0])); err != nil {
			t.Error(err)
		}
	})
}

func TestParseDigest(t *testing.T) {
	d, err := ParseDigest("sha256:" + digits)
	if err != nil || d.Encoded() != digits || d.String() != "sha256:"+digits {
		t.Errorf("got %q, %v", d, err)
	}
	for _, bad := range []string{"", digits, "sha512:" + digits + digits, "sha256:../../../../etc/passwd", "sha256:" + digits[:63] + "/"} {
		if d, err := ParseDigest(bad); err == nil {
			t.Errorf("ParseDigest(%q) = %q", bad, d)
		}
	}
	if got := DigestOf(nil); got != "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Errorf("the digest of nothing is %s", got)
	}
}
