#!/bin/sh
# A video becomes another format, and a picture of its middle. Decoders of media read untrusted bytes: a sandbox bounds what
# a bug in one can reach, and how much memory and time it can use.
# The tools are in the image "media", which demesne builds at its first use. IMAGE=host takes this machine's ffmpeg.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/in" "$work/out"
sandbox() { "${DEMESNE:-demesne}" run --image "${IMAGE:-media}" --memory 1g --timeout 2m "$@"; }

# The input: two seconds of a test picture with a tone. Yours would be an upload.
sandbox --out "$work/in" -- ffmpeg -v error -f lavfi -i testsrc2=size=320x180:rate=25:duration=2 -f lavfi -i sine=frequency=440:duration=2 /out/upload.mkv

sandbox --in "$work/in/upload.mkv" --out "$work/out" -- sh -ec '
  ffmpeg -v error -i /in/upload.mkv -c:v libvpx -b:v 300k -c:a libopus /out/video.webm
  ffmpeg -v error -ss 1 -i /in/upload.mkv -frames:v 1 /out/poster.jpg
  ffprobe -v error -show_entries format=format_name:stream=codec_name -of csv=p=0 /out/video.webm'
printf 'poster: %s bytes of JPEG\n' "$(wc -c < "$work/out/poster.jpg")"

# A file that is not a video ends in an error, and nothing else.
echo nonsense > "$work/in/upload.mkv"
sandbox --in "$work/in/upload.mkv" -- ffmpeg -v error -i /in/upload.mkv -f null - 2> "$work/messages" || echo "refused: exit $?"
