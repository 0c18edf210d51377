#!/bin/bash
# page.sh CONSOLE prints the rows that a machine printed, and compares them with docs/reference/environments.md. It fails if a cell is
# worse there, or if a row is not on the page. With UPDATE=1 it writes the rows to the page.
set -eu
cd "$(dirname "$0")/../.."
page=docs/reference/environments.md
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
echo "== rows"
tr -d '\r' <"$1" | sed -n 's/^row: |/|/p' | tee "$rows"
if [ -n "${UPDATE:-}" ]; then # a new row becomes the last one of its table
  awk -F'|' 'NR == FNR { row[$2] = $0; name[++n] = $2; next }
    /^## / { mine = /Virtual machines/ }
    mine && /^\|/ { table = 1; if ($2 in row) { $0 = row[$2]; delete row[$2] } }
    mine && table && !/^\|/ { table = mine = 0; for (i = 1; i <= n; i++) if (name[i] in row) print row[name[i]] }
    { print }' "$rows" "$page" >"$rows.page"
  cat "$rows.page" >"$page"
  rm "$rows.page"
  exit
fi
grade() { case $1 in untried) echo 0 ;; -) echo 1 ;; minimal) echo 2 ;; yes) echo 3 ;; *) echo 4 ;; esac; }
failed=0
while IFS= read -r row; do
  name=$(cut -d'|' -f2 <<<"$row")
  said=$(grep -F "|$name|" $page | head -1) || { echo "not on the page:$name"; failed=1; continue; }
  for n in {3..10}; do
    is=$(cut -d'|' -f$n <<<"$row" | tr -d ' ') promised=$(cut -d'|' -f$n <<<"$said" | tr -d ' ')
    [ "$(grade "$is")" -ge "$(grade "$promised")" ] || { echo "$name: column $n is $is, and the page says $promised"; failed=1; }
  done
done <"$rows"
exit $failed
