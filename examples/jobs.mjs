#!/usr/bin/env node
// Submits many jobs to a Paceline daemon in one request, waits for them, and prints what each lane answered.
// usage: PACELINE_TOKEN=... jobs.mjs DAEMON LANE[,LANE...] [JOBS]   as http://127.0.0.1:7400 shop,books 20
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

const [daemon, lanes, count = '20'] = process.argv.slice(2);
process.on('uncaughtException', (error) => {
  console.error(`jobs: ${error.cause?.message ?? error.message}`);
  process.exit(1);
});
if (!lanes) throw new Error('usage: jobs.mjs DAEMON LANE[,LANE...] [JOBS]');

// Asks the daemon; asks again when it says so or the connection broke. The key below makes that safe.
async function ask(path, options = {}) {
  const headers = { 'Content-Type': 'application/json', ...options.headers };
  if (process.env.PACELINE_TOKEN) headers['Paceline-Token'] = process.env.PACELINE_TOKEN;
  for (let tries = 1; ; tries += 1) {
    let wait = 1;
    try {
      const response = await fetch(new URL(path, daemon), { ...options, headers });
      const body = await response.json();
      if (response.ok) return body;
      wait = Number(response.headers.get('Retry-After'));
      if (!wait || tries === 5) throw Object.assign(new Error(`${body.reason}: ${body.detail}`), { body });
    } catch (error) {
      if (error.body || tries === 5) throw error;
    }
    await sleep(wait * 1000);
  }
}

// The job when it is finished. Each request is held for half a minute at most, as proxies like it.
async function finished(job) {
  const it = await ask(`/api/v1/jobs/${job}`, { headers: { Prefer: 'wait=30' } });
  return ['waiting', 'running'].includes(it.state) ? finished(job) : it;
}

const terms = { kind: 'http', lanes: lanes.split(','), attempts: 1, max_wait: '10s' };
const jobs = Array.from({ length: Number(count) }, (_, n) => ({ ...terms, payload: { path: `/item/${n}` } }));
const submit = { method: 'POST', body: JSON.stringify(jobs), headers: { 'Idempotency-Key': randomUUID() } };
const submitted = await ask('/api/v1/jobs', submit);
const refused = submitted.jobs.filter((it) => it.problem);
for (const { problem } of refused) console.error(`refused: ${problem.reason}: ${problem.detail}`);

// One after the other: it takes no longer than the last of them, and one connection.
const reports = [];
for (const { job } of submitted.jobs) if (job !== null) reports.push(await finished(job));

// Counts equal words, as in `3 x done, 1 x failed`.
function counted(words, between = ', ') {
  const count = (word) => words.filter((it) => it === word).length;
  return [...new Set(words)].sort().map((word) => `${count(word)} x ${word}`).join(between);
}
const coverage = reports.flatMap((report) => report.calls)
  .map((call) => `${call.lane}: ${call.outcome} ${call.reason ?? call.class ?? ''}`.trim());
const answers = counted(reports.map((report) => report.answer));
console.log(`${reports.length} jobs: ${answers}\n${counted(coverage, '\n')}`);
process.exitCode = refused.length ? 1 : 0;
