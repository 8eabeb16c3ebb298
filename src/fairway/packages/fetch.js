// node -e SCRIPT -- DIRECTORY NAME VERSION [PROGRAM]: fetches a package, and links its program as DIRECTORY/run.
"use strict";
const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");

const [directory, name, version, wanted] = process.argv.slice(1);

function fail(message) {
  console.error(`package ${name}: ${message}`);
  process.exit(1);
}

const options = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--omit=dev"];
const cache = path.join(process.env.HOME || "/tmp", ".npm");
const done = spawnSync(
  "npm",
  ["install", ...options, "--cache", cache, "--prefix", directory, "--", `${name}@${version}`],
  { stdio: ["ignore", "inherit", "inherit"] },
);
if (done.error) fail(`npm cannot be started: ${done.error.message}`);
if (done.status !== 0) fail(`version ${version} could not be fetched; what npm said is in the line before`);

const home = path.join(directory, "node_modules", ...name.split("/"));
const about = JSON.parse(fs.readFileSync(path.join(home, "package.json"), "utf8"));
const own = name.split("/").pop();
const programs = typeof about.bin === "string" ? { [own]: about.bin } : about.bin || {};
const all = Object.keys(programs);
const chosen = wanted || (own in programs ? own : all.length === 1 ? all[0] : undefined);
if (chosen === undefined || !(chosen in programs)) {
  const known = all.length ? `it has ${all.sort().join(", ")}` : "it has none";
  fail(`${chosen ? `there is no program ${chosen}` : "which program is meant"}: ${known}; name one in spec.command`);
}
const link = path.join(directory, "run");
fs.rmSync(link, { force: true });
fs.symlinkSync(path.join(home, programs[chosen]), link);
