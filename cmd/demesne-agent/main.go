// Command demesne-agent is a stand-in.
package main

func main() {}
