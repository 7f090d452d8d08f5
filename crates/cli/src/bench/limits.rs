use super::Figure;

pub(crate) fn measure(_scale: usize) -> anyhow::Result<Vec<Figure>> {
    Ok(Vec::new())
}
