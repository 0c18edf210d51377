//go:build linux && cgo

package userns

/*
extern void demesne_userns(void);
__attribute__((constructor)) static void demesne_constructor(void) { demesne_userns(); }
*/
import "C"
