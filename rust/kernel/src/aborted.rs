//! Which batches of a fetch response belong to aborted transactions (KIP-98).
//!
//! With `read_committed` the broker lists, per response, the aborted transactions that overlap it: the producer and the
//! first offset of each. From that offset on, the producer's transactional batches are dropped, up to the ABORT
//! control record that ends the transaction.

/// An entry of a fetch response's list of aborted transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
}

/// Follows the aborted transactions through the batches of one response.
#[derive(Debug, Default)]
pub(crate) struct AbortedTransactions {
    /// By first offset, the latest first, so that the next one is at the end.
    coming: Vec<AbortedTransaction>,
    open: Vec<i64>,
}

impl AbortedTransactions {
    pub fn new(mut listed: Vec<AbortedTransaction>) -> Self {
        listed.sort_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
        AbortedTransactions { coming: listed, open: Vec::new() }
    }

    /// Whether there is anything to follow.
    pub fn any(&self) -> bool {
        !self.coming.is_empty() || !self.open.is_empty()
    }

    /// Opens the transactions that begin at `last_offset` (of the next batch) or before.
    pub fn advance_to(&mut self, last_offset: i64) {
        while let Some(transaction) = self.coming.pop_if(|next| next.first_offset <= last_offset) {
            if !self.open.contains(&transaction.producer_id) {
                self.open.push(transaction.producer_id);
            }
        }
    }

    pub fn contains(&self, producer_id: i64) -> bool {
        self.open.contains(&producer_id)
    }

    /// An ABORT control record of this producer was met.
    pub fn end(&mut self, producer_id: i64) {
        self.open.retain(|&open| open != producer_id);
    }
}
