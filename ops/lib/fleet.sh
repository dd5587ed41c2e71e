# shellcheck shell=bash
# One fleet on this machine: the hosts of an estate in the plane's lab, enrolled, with an agent each. Needs `common.sh` and `plane.sh`.
#
# - A host that is enrolled stays enrolled; an agent that runs is left alone.
# - The estate is applied once: what an operator changed since is not changed back by another start.
# - Agents get the caller's HOLDFAST_AGENT_* variables and no other of ours; unless one says else, they keep no failsafe port open, so that what
#   packets show is the policy.

# Makes the hosts' namespaces: `fleet_lab ESTATE HOSTS`, HOSTS being empty or a number.
fleet_lab() {
    local estate="$1" hosts="$2" counted=()
    [[ -z $hosts ]] || counted=(--hosts "$hosts")
    if ! lab up --estate "$estate" "${counted[@]}" --mode-command "$HOLDFAST_ROOT/ops/lib/set-mode" >&2; then
        local more=''
        [[ ! -f $PLANE_LAB/lab.json ]] || more="
  hosts stand in $PLANE: to bring others up, first ./ops/down; for another estate altogether: ./ops/down --wipe"
        die "the lab of $estate cannot be made (its words are above)$more"
    fi
    lab documents --to "$PLANE_DOCUMENTS" >&2 || die "the estate cannot be written as documents"
}

# Asks the API by the command line, as the first token.
holdfast() {
    HOLDFAST_API="https://127.0.0.1:$API_PORT" HOLDFAST_TOKEN_FILE="$PLANE_TOKENS/admin" HOLDFAST_CA="$PLANE_KEYS/public/ca.pem" \
        "$PLANE_BIN/holdfast" "$@" 9>&-
}

# Prints one argument a line from a list with commas, each after a flag: `flags FLAG LIST`.
flags() {
    local item items
    [[ $2 != - ]] || return 0
    IFS=, read -r -a items <<<"$2"
    for item in "${items[@]}"; do printf '%s\n%s\n' "$1" "$item"; done
}

# Enrols the hosts that are not: each by a token of its own, which allows what the estate says of it and nothing else.
fleet_enrol() {
    local pin host state namespace name labels ports addresses token count=0 all
    pin="$(<"$PLANE_KEYS/public/ca.pin")"
    all="$(wc -l <"$PLANE_DOCUMENTS/hosts.tsv")"
    while IFS=$'\t' read -r host state namespace name labels ports addresses <&8; do
        [[ ! -e $state/identity/enrolment.json ]] || continue
        token="$PLANE_TOKENS/enrol"
        mapfile -t allowed < <(
            flags --label "$labels"
            flags --port "$ports"
            flags --address "$addresses"
        )
        rm -f "$token"
        holdfast enrol-token create --namespace "$namespace" --uses 1 "${allowed[@]}" --out "$token" >>"$PLANE_RUN/enrol.log" 2>&1 ||
            die "no enrolment token for $host: $(tail -n 3 "$PLANE_RUN/enrol.log")"
        lab exec "$host" -- "${AGENT[@]}" enrol --state "$state" --token-file "$token" --name "$name" \
            --gateway "https://${PLANE_GATEWAYS%%,*}" --ca-pin "$pin" >>"$PLANE_RUN/enrol.log" 2>&1 ||
            die "$host cannot be enrolled: $(tail -n 3 "$PLANE_RUN/enrol.log")"
        rm -f "$token"
        count=$((count + 1))
        progress "enrolled: $count of $all"
    done 8<"$PLANE_DOCUMENTS/hosts.tsv"
    progress ""
    ((count == 0)) || say "$count hosts enrolled"
}

# Says how an agent is run.
fleet_agent() {
    local name given=()
    for name in "${!HOLDFAST_AGENT_@}"; do given+=("$name=${!name}"); done
    AGENT=(env -i "PATH=$PATH" "HOLDFAST_LOG=${HOLDFAST_LOG:-info}" "HOLDFAST_LOG_FORMAT=${HOLDFAST_LOG_FORMAT:-text}"
        HOLDFAST_AGENT_FAILSAFE_PORTS= "${given[@]}" "$PLANE_BIN/holdfast-agent")
}

# Starts the agents that do not run, and waits until each has read its rules back.
fleet_agents() {
    local host state count=0 all
    all="$(wc -l <"$PLANE_DOCUMENTS/hosts.tsv")"
    lab start -- "${AGENT[@]}" run --state '{state}' >&2 || die "the agents do not start"
    while IFS=$'\t' read -r host state _ <&8; do
        wait_until 30 lab exec "$host" -- "${AGENT[@]}" healthcheck --state "$state" ||
            die "the agent of $host is not well: $(tail -n 5 "$state/agent.log")"
        count=$((count + 1))
        progress "agents that answer: $count of $all"
    done 8<"$PLANE_DOCUMENTS/hosts.tsv"
    progress ""
}

# Applies the estate, once; and again where a check of packets that was cut off left its hosts open.
fleet_apply() {
    local digest mode
    digest="$(sha256sum <"$PLANE_DOCUMENTS/objects.yaml" | cut -c1-64)"
    mode="$(plane_value MODE)"
    [[ -z $mode ]] || say "a check of packets was cut off and may have left the hosts in $mode: applying the estate again"
    [[ -n $mode || "$(plane_value APPLIED)" != "$digest" ]] || return 0
    holdfast apply -f "$PLANE_DOCUMENTS/objects.yaml" >&2 || die "the estate's documents are refused (the words are above)"
    plane_remember APPLIED "$digest"
    plane_remember MODE ""
}

# Finds the hosts that are enrolled here and are not in the estate: they were of an earlier one, and nothing serves them.
fleet_find_strangers() {
    local enrolled
    enrolled="$(holdfast get hosts -o name)" || die "the hosts cannot be listed (the words are above)"
    STRANGERS="$(comm -23 <(sort <<<"${enrolled//host\//}") \
        <(awk -F '\t' '{ print $3 "/" $4 }' "$PLANE_DOCUMENTS/hosts.tsv" | sort) | paste -sd ' ')"
}

# Says which those are: a fleet is not converged without them.
fleet_tell_strangers() {
    fleet_find_strangers
    [[ -z $STRANGERS ]] || say "enrolled here, but not in this estate: $STRANGERS
  without an agent they stay OFFLINE, and holdfast status is not converged without them: bring them back (--estate, --hosts), or take
  each out: holdfast host decommission NAME"
}

# Prints the objects that are in force in the estate's namespaces though the estate does not have them (any more), one a line.
fleet_leftovers() {
    holdfast plan -f "$PLANE_DOCUMENTS/objects.yaml" --prune 2>/dev/null | sed -n 's/ deleted$//p'
}

# Says which those are.
fleet_tell_leftovers() {
    local object left=() wait=''
    mapfile -t left < <(fleet_leftovers)
    ((${#left[@]} == 0)) || say "in force, but not in the estate (an operator's, or of an earlier form of it):"
    # With hosts that nobody serves any more a wait for all of them has no end.
    [[ -n $STRANGERS ]] || wait=' --wait'
    for object in "${left[@]}"; do say "  $object   to take it out of force: holdfast delete $object$wait"; done
}

# Prints the estate's hosts that are not proven to hold what was rendered for them, one a line; fails where the API does.
fleet_missing() {
    local listed
    listed="$(holdfast get hosts)" || return 1
    comm -12 <(awk '$3 != "converged" && $3 != "degraded" { print $1 }' <<<"$listed" | sort) \
        <(awk -F '\t' '{ print $3 "/" $4 }' "$PLANE_DOCUMENTS/hosts.tsv" | sort)
}

# Whether they all have what was last authored; until that is rendered, what a host has proven is what was before it.
fleet_nobody_is_missing() {
    local status rendered latest missing
    status="$(holdfast status -o json)" || return 1
    rendered="$(sed -n 's/^  "rendered_revision": \([0-9]*\),*$/\1/p' <<<"$status")"
    latest="$(sed -n 's/^  "latest_revision": \([0-9]*\),*$/\1/p' <<<"$status")"
    [[ -n $latest && -n $rendered && $rendered -ge $latest ]] || return 1
    missing="$(fleet_missing)" && [[ -z $missing ]]
}

# Waits until every host of the estate is proven to hold what was rendered for it; one that only an earlier estate had is told, and not waited for.
fleet_converged() {
    local seconds="$1" code=0 why
    if [[ -n ${STRANGERS:-} ]]; then
        wait_until "$seconds" fleet_nobody_is_missing ||
            die "not converged after $seconds s: $(fleet_missing | paste -sd ' ')
  ask further: . $PLANE/env; holdfast get hosts; holdfast doctor
  logs are in $PLANE_RUN and $PLANE_LAB/hosts"
        say "every host of the estate is converged; $STRANGERS stays as it is"
        return 0
    fi
    holdfast wait --for converged --timeout "${seconds}s" >&2 || code=$?
    case "$code" in
        0) return 0 ;;
        6) why="the fleet is not converged after $seconds s (who is missing is said above)" ;;
        7) why="the fleet has everything, but not all of it is proven after $seconds s (who is missing is said above)" ;;
        1) why="a host did not take what was rendered for it (named above)" ;;
        *) why="the fleet cannot be asked (the words are above)" ;;
    esac
    die "$why
  ask further: . $PLANE/env; holdfast get hosts; holdfast doctor
  logs are in $PLANE_RUN and $PLANE_LAB/hosts"
}

# Takes the Host documents away again that a check of packets made for hosts that the estate has none for: `fleet_forget_checked BEFORE`, what was left
# over before. Into visibility first, in which every host without a document is: to leave enforcement unsaid is refused.
fleet_forget_checked() {
    local object namespace name file meant made=()
    mapfile -t made < <(comm -13 <(tr ' ' '\n' <<<"$1" | sort) <(fleet_leftovers | sort) | grep '^Host/')
    ((${#made[@]} > 0)) || return 0
    file="$PLANE_DOCUMENTS/forgotten.yaml"
    for object in "${made[@]}"; do
        IFS=/ read -r _ namespace name <<<"$object"
        printf -- '---\napiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {name: %s, namespace: %s}\nspec: {mode: visibility}\n' "$name" "$namespace"
    done >"$file"
    meant="$(holdfast plan -f "$file" -o json 2>/dev/null | sed -n 's/^ *"acknowledge": "\([^"]*\)".*$/\1/p')"
    if ! holdfast apply -f "$file" ${meant:+--acknowledge "$meant|the check of packets is over"} >/dev/null ||
        ! holdfast delete "${made[@]}" >/dev/null; then
        die "the Host documents that the check of packets made cannot be taken away: ${made[*]}"
    fi
    rm -f "$file"
}

# Holds the estate against real packets, once; the hosts end in the modes that the estate says.
fleet_verify() {
    local wanted before
    wanted="$(plane_value APPLIED) $(sha256sum <"$PLANE_DOCUMENTS/hosts.tsv" | cut -c1-64)"
    if [[ "$(plane_value VERIFIED)" == "$wanted" ]]; then
        say "these hosts and documents were held against packets before; holdfast-lab verify does it again"
        return 0
    fi
    # Of a check that is cut off its documents are left over, and told as such: whose they are is not known afterwards.
    before="$(fleet_leftovers | paste -sd ' ')" || die "the estate's documents cannot be planned: ask holdfast plan -f $PLANE_DOCUMENTS/objects.yaml --prune"
    plane_remember VERIFIED ""
    say "opening all hosts, enforcing again, and sending packets between them: a revision each"
    lab verify >&2 || die "the packets say else (the table is above); what is in force beside the estate is said before it"
    holdfast apply -f "$PLANE_DOCUMENTS/objects.yaml" >/dev/null || die "the estate's documents are refused"
    fleet_forget_checked "$before"
    fleet_converged 120
    plane_remember VERIFIED "$wanted"
}

# Ends the agents, each with its last good policy on disk, and takes the namespaces away.
fleet_stop() {
    if [[ -x $PLANE_BIN/holdfast-lab ]]; then
        lab stop 2>/dev/null || true
    fi
}
