// Package page serves the web page: what sandboxes, runs, jobs and agents do, and the answers to what they ask.
//
//	page.go      the files of the page, and their headers
//	session.go   login and logout, by [server.Access]
//	assets/      HTML, CSS and JavaScript modules, embedded as they are; there is no build step
//
// The page has no data of its own: it is a client of the HTTP APIs beside it. Its files are public; everything else needs
// a login. What a sandbox writes is hostile. The page sets it as text (textContent) and never as markup, its
// Content-Security-Policy allows no inline script and no other host, and Trusted Types refuse the functions that parse
// HTML. Two kinds of content need a weaker policy: the terminal emulator, which sets styles, and HTML outputs. Each is in a
// frame with an opaque origin, which can reach neither the page nor the API.
//
// The package rests on the browser for this, and on no mechanism of the kernel.
package page
