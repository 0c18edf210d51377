package vault

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"
)

func TestVault(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "vault")
	v := Open(dir, Source{})
	if all, err := v.List(""); err != nil || len(all) != 0 {
		t.Fatalf("a new vault has %v, %v", all, err)
	}
	s := Secret{Namespace: "default", Name: "TOKEN", Value: "correct-horse", Host: "api.example.test:8443", Header: "Authorization"}
	if replaced, err := v.Add(s); replaced || err != nil {
		t.Fatal(replaced, err)
	}
	other := Secret{Namespace: "ci", Name: "TOKEN", Value: "battery-staple"}
	if replaced, err := v.Add(other); replaced || err != nil {
		t.Fatal(replaced, err)
	}
	for _, want := range []Secret{s, other} {
		got, err := v.Get(want.Namespace, want.Name)
		if got.Added.IsZero() {
			t.Error("no time")
		}
		want.Added = got.Added
		if err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if all, err := v.List(""); err != nil || len(all) != 2 || all[0].Namespace != "ci" || all[0].Value+all[1].Value != "" {
		t.Errorf("list: %+v, %v", all, err)
	}
	if all, _ := v.List("default"); len(all) != 1 {
		t.Errorf("list of a namespace: %+v", all)
	}
	if replaced, err := v.Add(Secret{Namespace: "ci", Name: "TOKEN", Value: "other"}); !replaced || err != nil {
		t.Error(replaced, err)
	}
	if err := v.Remove("ci", "TOKEN"); err != nil {
		t.Error(err)
	}
	for _, err := range []error{v.Remove("ci", "TOKEN"), func() error { _, err := v.Get("ci", "TOKEN"); return err }()} {
		if !errors.Is(err, ErrNone) {
			t.Error(err)
		}
	}
	files, _ := filepath.Glob(dir + "/*")
	for _, file := range files {
		b, _ := os.ReadFile(file)
		if bytes.Contains(b, []byte("correct-horse")) || bytes.Contains(b, []byte("TOKEN")) {
			t.Errorf("%s is not encrypted", file)
		}
		if info, _ := os.Stat(file); info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %s", file, info.Mode())
		}
	}
}

func TestAddRefuses(t *testing.T) {
	v := Open(t.TempDir(), Source{})
	for _, c := range []struct{ namespace, name, value, want string }{
		{"", "A", "x", "namespace"}, {"-a", "A", "x", "namespace"}, {"a/b", "A", "x", "namespace"}, {"A", "A", "x", "namespace"},
		{"a", "", "x", "name"}, {"a", "1A", "x", "name"}, {"a", "A/B", "x", "name"}, {"a", "A-B", "x", "name"},
		{"a", "A", "", "empty"}, {"a", "A", "x\ny", "one line"}, {"a", "A", strings.Repeat("x", MaxValue+1), "longer"},
	} {
		if _, err := v.Add(Secret{Namespace: c.namespace, Name: c.name, Value: c.value}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestConcurrent has many writers at once: none is lost.
func TestConcurrent(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := Open(dir, Source{}).Add(Secret{Namespace: "a", Name: "A" + string(rune('A'+i)), Value: "x"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if all, err := Open(dir, Source{}).List("a"); err != nil || len(all) != 20 {
		t.Errorf("%d secrets, %v", len(all), err)
	}
}

func TestKeys(t *testing.T) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	text := "# created: today\n" + key.String() + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	command := Source{Command: "cat " + file}
	if _, err := Open(dir, command).Add(Secret{Namespace: "a", Name: "A", Value: "x"}); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(dir, Source{File: file}).Get("a", "A"); err != nil || s.Value != "x" {
		t.Errorf("the same key from a file: %+v, %v", s, err)
	}
	for _, c := range []struct {
		what string
		key  Source
		want string
	}{
		{"the default key, which is missing", Source{}, "no such file"},
		{"a missing file", Source{File: file + "x"}, "no such file"},
		{"a command that fails", Source{Command: "exit 4"}, "exit status 4"},
		{"a command that prints nothing", Source{Command: "true"}, "is empty"},
		{"another key", Source{Command: "echo AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX"}, "decrypt secrets"},
		{"no key", Source{Command: "echo secret-words"}, "not one identity"},
	} {
		_, err := Open(dir, c.key).Get("a", "A")
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret-words") || strings.Contains(err.Error(), "GFPYY") {
			t.Errorf("%s: %v", c.what, err)
		}
		if _, err := Open(dir, c.key).Add(Secret{Namespace: "a", Name: "B", Value: "x"}); err == nil {
			t.Errorf("%s: secrets were replaced", c.what)
		}
	}
	os.Chmod(file, 0o644)
	if _, err := Open(dir, Source{File: file}).Get("a", "A"); err == nil || !strings.Contains(err.Error(), "other users can read it") {
		t.Errorf("a key that others can read: %v", err)
	}
	for _, s := range []string{"file:key", "file:", "cmd:", "env:KEY", "x"} {
		if _, err := ParseSource(s); err == nil {
			t.Errorf("%q is a source", s)
		}
	}
}

// TestDamaged has a file that was cut, changed, or is not a file.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	v := Open(dir, Source{})
	if _, err := v.Add(Secret{Namespace: "a", Name: "A", Value: "x"}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, secretsFile)
	whole, _ := os.ReadFile(file)
	for n := 0; n < len(whole); n += 7 {
		os.WriteFile(file, whole[:n], 0o600)
		if _, err := v.Get("a", "A"); err == nil || errors.Is(err, ErrNone) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		changed := bytes.Clone(whole)
		changed[n] ^= 1
		os.WriteFile(file, changed, 0o600)
		if s, err := v.Get("a", "A"); err == nil && s.Value != "x" {
			t.Fatalf("byte %d changed: %+v", n, s)
		}
	}
	os.Remove(file)
	if err := os.Symlink("/etc/passwd", file); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Get("a", "A"); err == nil {
		t.Error("a link was followed")
	}
}
