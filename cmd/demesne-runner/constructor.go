package main

// userns.c is the C half of package userns: the behaviour shown in the diagrams of that package. It runs before the Go
// runtime starts.

/*
extern void demesne_userns(void);
__attribute__((constructor)) static void demesne_constructor(void) { demesne_userns(); }
*/
import "C"
