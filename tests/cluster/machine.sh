#!/usr/bin/env bash
# One made machine, as the first process of its PID, mount, network, IPC and UTS namespaces:
#   machine.sh FOLDER ADDRESS SHOWN... -- COMMAND...
# Of this machine's /tmp, /home, /root, /run and /dev/shm it sees nothing but FOLDER and the folders SHOWN; there
# is one more user, `hagmeta`. COMMAND runs when the network is there.
set -euo pipefail
folder=$1 address=$2
shift 2
shown=("$folder")
while [ "$1" != -- ]; do
    shown+=("$1")
    shift
done
shift

# An empty folder over $1 in which, of what was there, only the shown ones appear.
hide() {
    local empty=$folder/hidden$1 path
    mkdir -p "$empty"
    mount -t tmpfs -o mode="$2" tmpfs "$empty"
    for path in "${shown[@]}"; do
        if [[ $path == "$1"/* ]]; then
            mkdir -p "$empty${path#"$1"}"
            mount --bind "$path" "$empty${path#"$1"}"
        fi
    done
    mount --rbind "$empty" "$1"
}

mount -t proc proc /proc
hide /dev/shm 1777
for path in /root /home /run; do hide "$path" 755; done

hostname "$(basename "$folder")"
for file in passwd group shadow; do cp "/etc/$file" "$folder/$file"; done
echo 'hagmeta:x:4242:4242::/home/hagmeta:/bin/bash' >>"$folder/passwd"
echo 'hagmeta:x:4242:' >>"$folder/group"
echo 'hagmeta:*:19000:0:99999:7:::' >>"$folder/shadow"
printf '%s\n' "127.0.0.1 localhost" "$address $(hostname)" >"$folder/hosts"
: >"$folder/resolv.conf" # there is no name server: answer so at once
for file in passwd group shadow hosts resolv.conf; do mount --bind "$folder/$file" "/etc/$file"; done

mkdir -p /home/hagmeta/.ssh /run/sshd
# A node that is lost is given up after some 15 s instead of a minute, and gives up as soon.
cat >/home/hagmeta/.bashrc <<'END'
export RAY_health_check_period_ms=1000 RAY_health_check_timeout_ms=2000 RAY_gcs_rpc_server_reconnect_timeout_s=15
END
[ ! -e "$folder/authorized_keys" ] || cp "$folder/authorized_keys" /home/hagmeta/.ssh/
chown -R 4242:4242 /home/hagmeta
chmod 700 /home/hagmeta /home/hagmeta/.ssh

ip link set lo up
until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip address add "$address/24" dev eth0
ip link set eth0 up
ip route add default dev eth0 # leads nowhere; Ray finds its own address by asking for a route
hide /tmp 1777 # last: FOLDER may lie there, and stays
"$@" &
wait
