#!/bin/bash
# Kills a simulation again and again and compares its result with that of an undisturbed run.
#   demo.sh [SEED]    the same seed draws the same delays
# Ends with "identical" and exit 0, or with "DIFFERENT" and exit 1.
set -eu
cd "$(dirname "$0")/.."
bin=$PWD/build/bin
heat2d=$bin/heat2d
kills_wanted=6
kills_needed=4
size=1000
every=20

if [ ! -x "$heat2d" ]; then
        echo "demo: $heat2d is missing; run make build" >&2
        exit 1
fi
seed=${1:-$((RANDOM * 32768 + RANDOM))}
RANDOM=$seed

dir=$(mktemp -d)
pid=
cleanup() {
        # The shell is ending anyway: nothing here may stop it half way.
        set +e
        [ -n "$pid" ] && kill -KILL "$pid" 2>/dev/null
        rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cd "$dir"

now_ms() { echo $((${EPOCHREALTIME//[^0-9]/} / 1000)); }
seconds() { printf '%d.%d s' $(($1 / 1000)) $(($1 % 1000 / 100)); }
simulate() { # NAME STEPS: the one command line of the first run and of every restart
        exec "$heat2d" --size $size --steps "$2" --every $every --print 1 --pool "$1.pool" \
                --out "$1.raw" >>"$1.log" 2>&1
}
give_up() { # WHY LOG
        echo "demo: $1" >&2
        tail -5 "$2" >&2
        exit 1
}
last_step() { sed -n 's/^step \([0-9]*\) of .*/\1/p' "$1" | tail -1; }

# As many steps as take about four seconds here, checkpoints included.
start=$(now_ms)
(simulate trial 100) || give_up "the simulation does not run" trial.log
elapsed=$(($(now_ms) - start))
steps=$((100 * 4000 / (elapsed + 1) / 100 * 100))
if [ $steps -lt 100 ]; then steps=100; fi
if [ $steps -gt 10000 ]; then steps=10000; fi
every=$(((steps + 39) / 40))

echo "heat2d on a plate of $size x $size points, $steps steps, a checkpoint every $every steps; seed $seed"
echo "1. without interruption"
start=$(now_ms)
(simulate calm $steps) || give_up "the undisturbed run failed" calm.log
calm_ms=$(($(now_ms) - start))
echo "   finished after $(seconds $calm_ms)"

# Runs until the simulation prints a step, then for MS more; true if the kill hit it. A restart thus gets the
# same time to work in, however long it takes to start on a busy machine.
run_and_kill() { # MS
        local lines deadline code=0
        lines=$(wc -l 2>/dev/null <killed.log || echo 0)
        simulate killed $steps &
        pid=$!
        deadline=$(($(now_ms) + 10000))
        while [ "$(wc -l <killed.log)" -le $((lines + 1)) ] && [ -n "$(jobs -r)" ] &&
                [ "$(now_ms)" -lt $deadline ]; do
                sleep 0.005
        done
        sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"
        kill -KILL $pid 2>/dev/null || true
        { wait $pid || code=$?; } 2>/dev/null
        pid=
        if [ $code != 0 ] && [ $code != 137 ]; then
                give_up "a run ended with exit code $code" killed.log
        fi
        [ $code = 137 ]
}

# The run that is killed. A delay is 4 to 16 % of the undisturbed time, so several fit.
disturbed() { # FRACTION: delays are divided by it
        local delay done_at
        rm -f killed.pool killed.raw
        : >killed.log
        kills=0
        start=$(now_ms)
        while [ $kills -lt $kills_wanted ]; do
                delay=$((calm_ms * (40 + RANDOM % 120) / 1000 / $1))
                run_and_kill $delay || break
                kills=$((kills + 1))
                done_at=$(last_step killed.log)
                echo "   kill $kills: SIGKILL after step ${done_at:-0}"
                echo "killed" >>killed.log
        done
        if [ $kills = $kills_wanted ]; then
                (simulate killed $steps) || give_up "the last restart failed" killed.log
        fi
        killed_ms=$(($(now_ms) - start))
}

echo "2. killed at random moments, restarted each time with the same command line"
divisor=1
disturbed $divisor
while [ $kills -lt $kills_needed ] && [ $divisor -lt 16 ]; do
        echo "   finished before it could be killed $kills_needed times; once more, with shorter delays"
        divisor=$((divisor * 2))
        disturbed $divisor
done
echo "   finished after $(seconds $killed_ms)"

executed=$(grep -c '^step ' killed.log)
restarts=$(grep -c '^continuing ' killed.log || true)
recomputed=$((executed - steps))
versions() { # POOL
        if [ -x "$bin/belay" ] && "$bin/belay" ls --json "$1" >versions.json 2>/dev/null; then
                # One "version": N for each; counted without a JSON reader.
                grep -o '"version": *[0-9]*' versions.json | grep -o '[0-9]*$' | paste -sd' '
        else
                echo '-'
        fi
}

echo
printf '%-14s %6s %9s %17s %8s   %s\n' run kills restarts 'steps recomputed' time 'versions in pool'
printf '%-14s %6s %9s %17s %8s   %s\n' undisturbed 0 0 0 "$(seconds $calm_ms)" "$(versions calm.pool)"
printf '%-14s %6s %9s %17s %8s   %s\n' killed $kills "$restarts" $recomputed \
        "$(seconds $killed_ms)" "$(versions killed.pool)"
echo
if [ $kills -lt $kills_needed ]; then
        echo "only $kills kills hit a running simulation; $kills_needed were wanted"
        exit 1
fi
if cmp calm.raw killed.raw; then
        echo "the results are identical, bit for bit"
else
        echo "the results are DIFFERENT"
        exit 1
fi
