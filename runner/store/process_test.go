package store

import (
	"os"
	"testing"
)

func TestIdentityIsNotThePidAlone(t *testing.T) {
	me, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !me.Alive() {
		t.Error("we are not alive")
	}
	other := me
	other.Start++
	if other.Alive() {
		t.Error("a later process with our pid passes for us")
	}
	other = me
	other.Boot = "another"
	if other.Alive() {
		t.Error("a process of another boot passes for us")
	}
	other = me
	other.Boot = ""
	if !other.Alive() {
		t.Error("a record without a boot is not ours")
	}
	other.Start++
	if other.Alive() {
		t.Error("a later process passes for us without a boot")
	}
}
