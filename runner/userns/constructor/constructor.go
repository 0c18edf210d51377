//go:build linux && cgo

// Package constructor is the C half of package userns. A program gets it, and
// with it the behaviour drawn there, by importing it for its side effect.
package constructor

/*
extern void demesne_userns(void);
__attribute__((constructor)) static void demesne_constructor(void) { demesne_userns(); }
*/
import "C"
