"""Is a kernel's pipeline right? Its abstract protocol, explored exhaustively or for every trip."""
