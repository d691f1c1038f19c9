"""Numbers, quantities and units in text, and which of them an answer claims."""
