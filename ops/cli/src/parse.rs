//! Values of the command line that are more than one word.

use holdfast_api::brake::Acknowledgement;

/// Reads `KEY=VALUE`.
pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label is written as KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Reads `DIGEST` or `DIGEST|WHY`.
pub(crate) fn acknowledgement(text: &str) -> Result<Acknowledgement, String> {
    let (digest, because) = text.split_once('|').unwrap_or((text, ""));
    if digest.is_empty() {
        return Err("an acknowledgement begins with the digest that the refusal or the plan named".to_owned());
    }
    Ok(Acknowledgement { digest: digest.trim().to_owned(), because: because.trim().to_owned() })
}

/// Reads `NAME=PORT` or `NAME=PORT/PROTOCOL`.
pub(crate) fn declared_port(text: &str) -> Result<(String, u16, String), String> {
    let wrong = || "a port is written as NAME=PORT or NAME=PORT/PROTOCOL".to_owned();
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (port, protocol) = rest.split_once('/').unwrap_or((rest, "tcp"));
    Ok((name.to_owned(), port.parse().map_err(|_| wrong())?, protocol.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_has_a_digest_and_may_say_why() {
        let said = acknowledgement("abc|it is | meant").expect("reads");
        assert_eq!((said.digest.as_str(), said.because.as_str()), ("abc", "it is | meant"));
        assert_eq!(acknowledgement("abc").map(|said| said.because), Ok(String::new()));
        assert!(acknowledgement("|why").is_err());
    }

    #[test]
    fn declared_ports_default_to_tcp() {
        assert_eq!(declared_port("http=80"), Ok(("http".to_owned(), 80, "tcp".to_owned())));
        assert_eq!(declared_port("dns=53/udp"), Ok(("dns".to_owned(), 53, "udp".to_owned())));
        assert!(declared_port("80").is_err() && declared_port("a=b").is_err());
    }
}
