#!/usr/bin/env bash
# `paceline fetch` beside curl, aria2 and wget2, on this machine, over loopback.
#
#   ./bench/fetch.sh [small|large|hung|million|kills|all]...      without a word: all
#
#   small    5,000 files of 4 KiB from one host
#   large    one file of 2 GiB
#   hung     a host that never answers stands first in the list, a healthy one behind it
#   million  1,000,000 addresses from a pipe: does memory stay where it is
#   kills    50 times `kill -9`: nothing lost, nothing asked for twice, limits kept
#
# Settings, from the environment:
#   PACELINE   the program to measure; unset: built from this repository; `none`: only the others
#   ROUNDS     rounds of the cases that compare, 5 unless told; medians of fewer mean little
#   BENCH_DIR  where the files go, /var/tmp unless told; a real disk, since syncing is half the work
#   N          addresses of `million`;  LARGE_MIB  size of `large`;  KILLS, SEED  of `kills`
#
# How it is fair. In each round every contender runs once, in rotated order, into an empty directory,
# after an untimed `sync`. Then the time until its files are durable is taken for itself ("then
# sync"): for all, also for paceline and aria2, which have synced each file and should owe nothing.
# `small` judges without that time, against a curl that keeps no books and syncs nothing; `large`
# judges with it. After each run every byte is compared with the source. Exit status 1 says that a
# must was missed.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
ROUNDS=${ROUNDS:-5}
N=${N:-1000000}
LARGE_MIB=${LARGE_MIB:-2048}
KILLS=${KILLS:-50}
SEED=${SEED:-$RANDOM}
BENCH_DIR=${BENCH_DIR:-/var/tmp}
# No setting of the machine's owner may speed up or slow down a contender.
unset http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY

fail() { printf 'bench: %s\n' "$1" >&2; exit 2; }

# == what is needed, and its end

install_missing_tools() {
  local missing=() as_root=()
  [ -x /usr/sbin/nginx ] || command -v nginx >/dev/null || missing+=(nginx-light)
  command -v aria2c >/dev/null || missing+=(aria2)
  command -v wget2 >/dev/null || missing+=(wget2)
  command -v curl >/dev/null || missing+=(curl)
  command -v python3 >/dev/null || missing+=(python3)
  [ -x /usr/bin/time ] || missing+=(time)
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || fail "no \`apt-get\` here: install ${missing[*]} by hand"
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "neither root nor sudo: install ${missing[*]} by hand"
    as_root=(sudo)
  fi
  echo "installing ${missing[*]}"
  # Runlevel 1 asks the package not to start nginx as a service: the script runs its own.
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

find_paceline() {
  if [ -z "${PACELINE:-}" ]; then
    (cd "$root" && cargo build --release --quiet --bin paceline)
    PACELINE=$(cd "$root" && realpath "${CARGO_TARGET_DIR:-target}/release/paceline")
  fi
  [ "$PACELINE" = none ] || "$PACELINE" fetch --help >/dev/null 2>&1 ||
    fail "\`$PACELINE fetch --help\` fails: set PACELINE to a program that can fetch, or to \`none\`"
}

make_room() {
  [ "$(stat -f -c %T "$BENCH_DIR")" != tmpfs ] ||
    fail "\`$BENCH_DIR\` is in memory: set BENCH_DIR to a directory on a disk"
  WORK=$(mktemp -d "$BENCH_DIR/paceline-bench.XXXXXX")
  OUT=$WORK/out
  export WORK HOME=$WORK/home
  mkdir -p "$WORK"/{source,home,runs}
  chattr +T "$WORK/runs" 2>/dev/null || true # see empty_output in fetch.py
}

started=()
tidy() {
  local status=$?
  trap '' INT TERM
  [ ${#started[@]} = 0 ] || kill "${started[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  [ -z "${WORK:-}" ] || rm -rf "$WORK"
  exit "$status"
}

# In the background and waited for, so that an interrupt is heard at once and ends it by its id.
run_python() {
  "$python" "$root/bench/fetch.py" "$@" &
  local id=$!
  started+=("$id")
  wait "$id"
  unset 'started[-1]'
}

# == the servers

# The paths: /small, /large and the like as fast as they go; /kills slowly and with a log, so that
# requests last long enough to overlap and to be killed; /say/... says its own path; /status counts.
start_nginx() {
  cat >"$WORK/nginx.conf" <<CONF
user $(id -un) $(id -gn);
daemon off;
worker_processes 1;
pid $WORK/nginx.pid;
events { worker_connections 2048; }
http {
  log_format wire '\$msec \$request_time \$server_addr \$connection \$status \$body_bytes_sent \$uri';
  access_log off;
  default_type application/octet-stream;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 10000000;
  open_file_cache max=20000;
  client_body_temp_path $WORK/nginx; proxy_temp_path $WORK/nginx; fastcgi_temp_path $WORK/nginx;
  uwsgi_temp_path $WORK/nginx; scgi_temp_path $WORK/nginx;
  server {
    listen 127.0.0.1:$PORT; listen 127.0.0.3:$PORT; listen 127.0.0.4:$PORT;
    root $WORK/source;
    location /kills/ { access_log $WORK/wire.log wire; limit_rate 1m; sendfile_max_chunk 16k; }
    location /say/ { return 200 \$uri; }
    location = /status { stub_status; }
  }
}
CONF
  PATH=$PATH:/usr/sbin nginx -e "$WORK/nginx.errors" -p "$WORK" -c "$WORK/nginx.conf" &
  started+=($!)
  await_port 127.0.0.1
}

# 127.0.0.2 takes every connection and never says a word.
start_silent_host() {
  "$python" "$root/bench/fetch.py" silent 127.0.0.2 "$PORT" &
  started+=($!)
  await_port 127.0.0.2
}

await_port() {
  local tries=0
  until (exec 3<>"/dev/tcp/$1/$PORT") 2>/dev/null; do
    ((++tries < 200)) || fail "the server at \`$1:$PORT\` does not come up: $(cat "$WORK/nginx.errors")"
    sleep 0.05
  done
}

# == sources and lists

# random_files CASE COUNT: 4 KiB each.
random_files() {
  mkdir -p "$WORK/source/$1"
  head -c $(($2 * 4096)) /dev/urandom |
    split -b 4096 -a 4 -d --additional-suffix=.bin - "$WORK/source/$1/f"
}

# addresses CASE [HOST]: one line for each source file.
addresses() {
  find "$WORK/source/$1" -type f -printf '%f\n' | sort |
    sed "s|^|http://${2:-127.0.0.1}:$PORT/$1/|"
}

# The same list for curl, which must be told each output file.
as_curl_config() { sed -E "s|(.*/)(.*)|url = \"\1\2\"\noutput = \"$OUT/\2\"|" "$1"; }

# == the contenders

# One answer for each name that the tables show. Quiet, without settings files, no preallocation.
command_of() {
  local list=$WORK/$1.list
  local curl=(curl -q -sS -f) aria2=(aria2c --no-conf -q --file-allocation=none -d "$OUT")
  local fetch=("$PACELINE" fetch -d "$OUT")
  case "$1: $2" in
    *': curl -Z') command=("${curl[@]}" -Z --parallel-max 16 -K "$list.curl") ;;
    *': aria2c -j16') command=("${aria2[@]}" -j16 -x1 -i "$list") ;;
    *': wget2') command=(wget2 -q --no-hsts --max-threads=16 -P "$OUT" -i "$list") ;;
    'small: paceline') command=("${fetch[@]}" -j 16 --per-host 16 -i "$list") ;;
    'large: curl') command=("${curl[@]}" -o "$OUT/large.bin" "$(<"$list")") ;;
    'large: aria2c -x16') command=("${aria2[@]}" -x16 -s16 -k1M "$(<"$list")") ;;
    'large: paceline') command=("${fetch[@]}" -i "$list") ;;
    'large: paceline --segments 4') command=("${fetch[@]}" --segments 4 -i "$list") ;;
    # As wide as the others in all, but one host alone can never hold every place.
    'hung: paceline') command=("${fetch[@]}" -j 16 --per-host 8 -i "$list") ;;
    'hung: paceline alone') command=("${fetch[@]}" -j 16 --per-host 8 -i "$list.healthy") ;;
    'million: paceline') command=("${fetch[@]}" -j 16 --per-host 16 -i -) ;;
    'kills: paceline') command=("${fetch[@]}" -j 8 --per-host 4 -i "$list") ;;
    *) fail "no command for \`$1: $2\`" ;;
  esac
}

# interleaved CASE VERB ARGUMENT CONTENDER...: every contender once a round, each round beginning with
# the next one, so that nobody always runs first or always behind the same neighbour.
interleaved() {
  local case=$1 verb=$2 argument=$3 round turn contender contenders=()
  for contender in "${@:4}"; do
    [[ $PACELINE = none && $contender = paceline* ]] || contenders+=("$contender")
  done
  for ((round = 0; round < ROUNDS; round++)); do
    for ((turn = 0; turn < ${#contenders[@]}; turn++)); do
      contender=${contenders[(round + turn) % ${#contenders[@]}]}
      command_of "$case" "$contender"
      run_python "$verb" "$case" "$contender" "$argument" "${command[@]}"
    done
  done
}

judge() { [ "$PACELINE" = none ] || run_python "$@"; }

# == the cases

run_small() {
  random_files small 5000
  addresses small >"$WORK/small.list"
  as_curl_config "$WORK/small.list" >"$WORK/small.list.curl"
  interleaved small measure "sync -f $OUT" 'curl -Z' 'aria2c -j16' wget2 paceline
  run_python table small wall 'curl -Z'
  judge all-right small paceline
  judge at-most small wall paceline 2 'curl -Z'
  judge at-most small wall paceline 0.5 'aria2c -j16'
}

run_large() {
  enough_room large $((LARGE_MIB / 1024 * 2 + 1)) 0
  mkdir -p "$WORK/source/large"
  head -c "${LARGE_MIB}M" /dev/urandom >"$WORK/source/large/large.bin"
  addresses large >"$WORK/large.list"
  interleaved large measure "sync $OUT/large.bin" \
    curl 'aria2c -x16' paceline 'paceline --segments 4'
  run_python table large durable curl
  rm -r "$WORK/source/large"
  judge all-right large paceline
  judge all-right large 'paceline --segments 4'
  judge at-most large durable paceline 1.1 curl
  judge at-most large durable 'paceline --segments 4' 1 'aria2c -x16'
}

run_hung() {
  random_files hung 1000
  addresses hung >"$WORK/hung.list.healthy"
  {
    seq -f "http://127.0.0.2:$PORT/silent%02.0f.bin" 50
    cat "$WORK/hung.list.healthy"
  } >"$WORK/hung.list"
  as_curl_config "$WORK/hung.list" >"$WORK/hung.list.curl"
  interleaved hung watch 25 'curl -Z' 'aria2c -j16' wget2 paceline 'paceline alone'
  run_python watched hung 25
  judge at-most hung all_there paceline 1.5 'paceline alone'
}

run_million() {
  [ "$PACELINE" != none ] || return 0
  enough_room million $((N / 200000 + 1)) $((N + N / 10))
  command_of million paceline
  run_python million "$N" "$PORT" "${command[@]}"
}

run_kills() {
  [ "$PACELINE" != none ] || return 0
  local number hosts=(127.0.0.1 127.0.0.3 127.0.0.4)
  mkdir -p "$WORK/source/kills"
  for ((number = 0; number < 2000; number++)); do
    head -c $((4096 + RANDOM * 258048 / 32767)) /dev/urandom >"$WORK/source/kills/f$number.bin"
    echo "http://${hosts[number % 3]}:$PORT/kills/f$number.bin"
  done >"$WORK/kills.list"
  command_of kills paceline
  run_python kills "$KILLS" "$SEED" "$PORT" 8 4 "${command[@]}"
}

# enough_room CASE GIBIBYTES INODES, on the file system of BENCH_DIR.
enough_room() {
  local free inodes
  free=$(df --output=avail -B1G "$WORK" | tail -1)
  inodes=$(df --output=iavail "$WORK" | tail -1 | tr -d ' ')
  echo "$1: needs $2 GiB and $3 inodes at $BENCH_DIR, which has ${free// /} GiB and $inodes inodes"
  ((free >= $2)) || fail "too little room for \`$1\`: set BENCH_DIR to a larger disk, or lower LARGE_MIB or N"
  # File systems without a fixed number of inodes, such as btrfs, answer 0 or a dash.
  [[ $inodes = - || $inodes = 0 ]] || ((inodes >= $3)) ||
    fail "too few inodes for \`$1\`: set BENCH_DIR to another file system, or lower N"
}

# == the whole

describe_machine() {
  local device journal=''
  device=$(findmnt -no SOURCE,FSTYPE -T "$WORK" | tr -s ' ')
  if [[ $device = *ext4 ]] && ! compgen -G "/proc/fs/jbd2/$(basename "${device% *}")-*" >/dev/null; then
    journal=' without a journal: making a file right after removing others is slow here'
  fi
  echo "machine   $(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)," \
    "$(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), Linux $(uname -r)"
  echo "disk      $BENCH_DIR on $device$journal"
  echo "tools     $(curl --version | head -1 | cut -d' ' -f1,2)," \
    "$(aria2c --version | head -1), $(wget2 --version | head -1 | cut -d' ' -f2,3)," \
    "$(PATH=$PATH:/usr/sbin nginx -v 2>&1 | sed 's/.*: //')"
  [ "$PACELINE" = none ] || echo "paceline  $("$PACELINE" --version)"
  ((ROUNDS >= 5)) || echo "rounds    $ROUNDS: fewer than 5 are a look, not a measurement"
}

cases=()
for word in "${@:-all}"; do
  case $word in
    all) cases+=(small large hung million kills) ;;
    small | large | hung | million | kills) cases+=("$word") ;;
    *) fail "no case named \`$word\`: small, large, hung, million, kills or all" ;;
  esac
done

trap tidy EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
install_missing_tools
# The real interpreter: a version manager's wrapper may not find it once HOME is elsewhere.
python=$(python3 -c 'import sys; print(sys.executable)')
find_paceline
make_room
PORT=$("$python" "$root/bench/fetch.py" port)
start_nginx
start_silent_host
describe_machine
for chosen in "${cases[@]}"; do
  echo
  "run_$chosen"
done

[ -s "$WORK/musts" ] || exit 0
echo
cat "$WORK/musts"
! grep -q '^MISSED' "$WORK/musts"
