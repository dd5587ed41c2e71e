# shellcheck shell=bash
# Certificates for servers that a developer or a test starts: an authority made on the spot and one certificate for loopback. Needs `common.sh`.
#
# - Made once per folder; keys are readable by their owner alone and live as long as the folder.
# - Never for a fleet: a fleet's certificates come from its own authority.

# Makes ca.pem, server.pem and server.key in FOLDER if they are not there: `ensure_loopback_certificates FOLDER`.
ensure_loopback_certificates() {
    local folder="$1"
    [[ ! -f $folder/server.pem ]] || return 0
    install -d -m 0755 "$folder"
    (
        umask 077
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj '/CN=loopback authority' \
            -addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign' \
            -keyout "$folder/ca.key" -out "$folder/ca.pem"
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj '/CN=localhost' \
            -keyout "$folder/server.key" -out "$folder/server.csr"
        printf '%s\n' 'subjectAltName=DNS:localhost,IP:127.0.0.1' 'basicConstraints=critical,CA:FALSE' 'extendedKeyUsage=serverAuth' >"$folder/server.ext"
        openssl x509 -req -in "$folder/server.csr" -CA "$folder/ca.pem" -CAkey "$folder/ca.key" -CAcreateserial -days 30 \
            -extfile "$folder/server.ext" -out "$folder/server.new"
        chmod 0644 "$folder/ca.pem" "$folder/server.new"
        rm -f "$folder/server.csr" "$folder/server.ext" "$folder/ca.srl" "$folder/ca.key"
        mv "$folder/server.new" "$folder/server.pem"
    ) >"$folder/openssl.log" 2>&1 </dev/null || die "openssl could not make certificates: $(tail -n 3 "$folder/openssl.log")"
}

# Prints a random word that is fit for a password.
random_word() {
    od -An -N16 -tx1 /dev/urandom | tr -d ' \n'
}
