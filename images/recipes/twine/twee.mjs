#!/usr/bin/env node
// twee [-f FORMAT[-VERSION]] [-o FILE] FILE|DIRECTORY…: compiles Twee to HTML.
import { randomUUID } from 'node:crypto';
import { readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { compileTwine2HTML, parseStoryFormat, parseTwee } from '/usr/local/lib/node_modules/extwee/index.js';

const formats = '/opt/story-formats';

function fail(text) {
  console.error(`twee: ${text}`);
  process.exit(1);
}

// A file that was named has any extension; in a directory only those of Twee count.
function sources(path) {
  if (!statSync(path).isDirectory()) return [path];
  return readdirSync(path, { recursive: true }).filter((n) => /\.(twee|tw|twee3|tw3)$/.test(n)).sort().map((n) => join(path, n));
}

const versions = (name) => readdirSync(join(formats, name)).sort((a, b) => b.localeCompare(a, undefined, { numeric: true }));

// Returns the directory of the newest version that starts with the wanted one, or else of the newest.
function find(wanted) {
  const all = readdirSync(formats);
  const [, name, version = ''] = /^(.*?)(?:-(\d[\d.]*))?$/.exec(wanted.toLowerCase());
  if (!all.includes(name)) fail(`no story format ${JSON.stringify(wanted)} (there are ${all.flatMap((n) => versions(n).map((v) => `${n}-${v}`)).join(', ')})`);
  const has = versions(name);
  const major = version.split('.')[0];
  const best = has.find((v) => v === version) ?? has.find((v) => v.split('.')[0] === major) ?? has[0];
  if (version && !best.startsWith(version)) console.error(`twee: ${name} ${version} is not here: using ${best}`);
  return join(formats, name, best, 'format.js');
}

try {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { output: { type: 'string', short: 'o' }, format: { type: 'string', short: 'f' } },
  });
  if (positionals.length === 0) fail('usage: twee [-f FORMAT] [-o FILE] FILE|DIRECTORY…');
  const text = positionals.flatMap(sources).map((n) => readFileSync(n, 'utf8')).join('\n\n');
  const story = parseTwee(text);
  if (!story.IFID) {
    story.IFID = randomUUID().toUpperCase();
    console.error(`twee: the story has no ifid: using ${story.IFID}`);
  }
  const own = story.format && `${story.format}${story.formatVersion ? `-${story.formatVersion}` : ''}`;
  const html = compileTwine2HTML(story, parseStoryFormat(readFileSync(find(values.format ?? (own || 'harlowe')), 'utf8')));
  if (values.output) writeFileSync(values.output, html);
  else process.stdout.write(html);
} catch (e) {
  fail(e.message);
}
