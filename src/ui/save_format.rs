//! What a view is written as; [`super::export`] makes the files.

/// What the view is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveFormat {
    /// A picture of the screen.
    Svg,
    /// The screen's text.
    Text,
    /// The view's figures, a line for each row.
    Csv,
    /// The whole interval, as `--batch --json` prints it.
    Json,
}

impl SaveFormat {
    /// All, in the order of the menu.
    pub const ALL: [Self; 4] = [Self::Svg, Self::Text, Self::Csv, Self::Json];

    /// The end of the file's name.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Text => "txt",
            Self::Csv => "csv",
            Self::Json => "json",
        }
    }

    /// Line in the menu.
    pub fn help(self) -> &'static str {
        match self {
            Self::Svg => "a picture of the screen, for a browser or a ticket",
            Self::Text => "the text of the screen",
            Self::Csv => "the figures of the view, not rounded, for a spreadsheet",
            Self::Json => "the whole interval of the guests in the view, as --batch --json prints it",
        }
    }
}
