#!/bin/sh
# One agent writes, a second one checks what it wrote. The second one gets the first one's output directory as its input.
set -eu
demesne=${DEMESNE:-demesne}

output() { sed -n 's/.*"output_dir": *"\([^"]*\)".*/\1/p' | tail -1; }

first=$("$demesne" agent run --json 'Write a haiku about sand to /out/haiku.txt.' --output-path /out/haiku.txt | output)
second=$("$demesne" agent run --json --in "$first" 'Count the syllables of each line of /in/out/haiku.txt. Write "yes" to /out/verdict.txt if they are 5, 7 and 5, else "no".' \
	--output-path /out/verdict.txt | output)
cat "$first/haiku.txt" "$second/verdict.txt"
