#!/bin/sh
# Lists the entries of /etc that Debian's most needed packages install and that a sandbox on the host's files lacks,
# without those that TestHostEtc of rootfs keeps outside for a reason. For developers of rootfs: run it by hand on a Debian machine, after apt-get install apt-file && apt-get
# update, which fetches the lists of files.
#
#	integration/etcfiles.sh [N]     # of the N packages of priority optional with most reverse dependencies; 1000
set -eu
n=${1:-1000}
rootfs=$(dirname "$0")/../rootfs
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# A line for each package that another needs: how many need it directly, by Depends or Recommends. Then what each needs.
apt-cache dumpavail | awk -v needs="$tmp/needs" '
	/^Package: / { name = $2 }
	/^Priority: optional/ { optional[name] = 1 }
	/^(Depends|Recommends|Pre-Depends): / {
		must = !/^Recommends/; sub(/^[^:]*: /, ""); split("", seen)
		gsub(/\([^)]*\)|:[a-z0-9]+| /, ""); k = split($0, all, /[,|]/)
		for (i = 1; i <= k; i++) if (all[i] != "" && !(all[i] in seen)) { seen[all[i]] = 1; count[all[i]]++; if (must) print name, all[i] > needs }
	}
	END { for (p in optional) print count[p] + 0, p }' | sort -k1,1nr -k2 > "$tmp/ranked"

# The first of them, and all that these need.
awk -v n="$n" '
	FILENAME ~ /needs$/ { need[$1] = need[$1] " " $2; next }
	FNR <= n { add($2) }
	function add(p,   k, i, all) {
		if (p in chosen) return
		chosen[p] = 1; print p
		k = split(need[p], all, " "); for (i = 1; i <= k; i++) add(all[i])
	}' "$tmp/needs" "$tmp/ranked" > "$tmp/packages"
echo "$n packages, $(wc -l < "$tmp/packages") with all that they need" >&2

# Their files below /etc. A line of an index: PATH SECTION/PACKAGE[,SECTION/PACKAGE…]
apt-get indextargets --format '$(FILENAME)' 'Created-By: Contents-deb' 'Created-By: Contents-deb-all' > "$tmp/indexes" 2>/dev/null || true
[ -s "$tmp/indexes" ] || apt-get indextargets --format '$(FILENAME)' | grep Contents > "$tmp/indexes"
while read -r index; do /usr/lib/apt/apt-helper cat-file "$index"; done < "$tmp/indexes" | grep '^etc/' | awk '
	NR == FNR { wanted[$1] = 1; next }
	{
		k = split($NF, all, ","); path = substr($0, 5, length($0) - length($NF) - 4); sub(/ +$/, "", path)
		for (i = 1; i <= k; i++) { sub(/.*\//, "", all[i]); if (all[i] in wanted) print path "\t" all[i] }
	}' "$tmp/packages" - | sort -u > "$tmp/files"

# The names of the rows, each with everything below it, and of the entries outside.
sed -n 's/^\t{"\([^"]*\)", \(bindDir\|copyFile\|keepLink\)}.*/\1/p' "$rootfs/etc.go" > "$tmp/rows"
sed -n '/^var withheld/,/^}/s/^\t[^"]*"\(.*\)".*/\1/p' "$rootfs/etchost_test.go" | sed 's/.*": "//' | tr ' ' '\n' > "$tmp/withheld"
awk -F '\t' '
	FILENAME ~ /rows$/ { row[$1] = 1; next }
	FILENAME ~ /withheld$/ { out[$1] = 1; next }
	{
		at = $1; has = at ~ /^java-/
		while (!has) { if (at in row) has = 1; if (!sub(/\/[^\/]*$/, "", at)) break }
		split($1, part, "/"); top = part[1]
		files++; if (has) { held++; next }
		at = $1; left = 0
		while (!left) { if (at in out) left = 1; if (!sub(/\/[^\/]*$/, "", at)) break }
		if (left) { kept++; next }
		lacks[top]++; if (!index(who[top], " " $2 " ")) who[top] = who[top] " " $2 " "
	}
	END {
		for (top in lacks) { w = who[top]; gsub(/  +/, " ", w); sub(/^ /, "", w); print lacks[top] "\t/etc/" top "\t" substr(w, 1, 120) }
		print files + 0 " files; a sandbox has " held + 0 ", and " kept + 0 " stay outside for a reason" > "/dev/stderr"
	}' "$tmp/rows" "$tmp/withheld" "$tmp/files" | sort -k2
