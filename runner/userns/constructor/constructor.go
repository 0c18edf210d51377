//go:build linux && cgo

// Package constructor is the C half of package userns. A program imports it for its side effect: the behaviour shown
// in the diagrams of that package.
package constructor

/*
extern void demesne_userns(void);
__attribute__((constructor)) static void demesne_constructor(void) { demesne_userns(); }
*/
import "C"
